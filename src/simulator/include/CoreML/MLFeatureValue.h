// Feature values and the providers that carry them into and out of a prediction.
// Threads: immutable after creation. Accessors never convert: asked for another type they answer nil, zero or empty.
// Ownership: a value retains the array, sequence or pixel buffer that it holds.
#pragma once

#import <CoreML/MLBase.h>

NS_ASSUME_NONNULL_BEGIN

@protocol MLFeatureProvider
@property(readonly, nonatomic) NSSet<NSString*>* featureNames;
- (nullable MLFeatureValue*)featureValueForName:(NSString*)featureName;
@end

API_AVAILABLE(macos(10.14))
@protocol MLBatchProvider
@property(readonly, nonatomic) NSInteger count;
- (id<MLFeatureProvider>)featuresAtIndex:(NSInteger)index;
@end

API_AVAILABLE(macos(10.14))
@interface MLSequence : NSObject <NSSecureCoding>
ML_STORAGE(MLSequence)
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic) NSArray<NSString*>* stringValues;
@property(readonly, nonatomic) NSArray<NSNumber*>* int64Values;
+ (instancetype)emptySequenceWithType:(MLFeatureType)type;
+ (instancetype)sequenceWithStringArray:(NSArray<NSString*>*)stringValues;
+ (instancetype)sequenceWithInt64Array:(NSArray<NSNumber*>*)int64Values;
@end

@interface MLFeatureValue : NSObject <NSCopying, NSSecureCoding>
ML_STORAGE(MLFeatureValue)
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, getter=isUndefined) BOOL undefined;
@property(readonly, nonatomic) int64_t int64Value;
@property(readonly, nonatomic) double doubleValue;
@property(readonly, nonatomic, copy) NSString* stringValue;
@property(readonly, nonatomic, nullable) MLMultiArray* multiArrayValue;
@property(readonly, nonatomic) NSDictionary<id<NSCopying>, NSNumber*>* dictionaryValue;
@property(readonly, nonatomic, nullable) CVPixelBufferRef imageBufferValue;
@property(readonly, nonatomic, nullable) MLSequence* sequenceValue API_AVAILABLE(macos(10.14));
+ (instancetype)featureValueWithInt64:(int64_t)value;
+ (instancetype)featureValueWithDouble:(double)value;
+ (instancetype)featureValueWithString:(NSString*)value;
+ (instancetype)featureValueWithMultiArray:(MLMultiArray*)value;
+ (instancetype)featureValueWithPixelBuffer:(CVPixelBufferRef)value;
+ (instancetype)featureValueWithSequence:(MLSequence*)sequence API_AVAILABLE(macos(10.14));
+ (instancetype)undefinedFeatureValueWithType:(MLFeatureType)type;
+ (nullable instancetype)featureValueWithDictionary:(NSDictionary<id<NSCopying>, NSNumber*>*)value
                                              error:(NSError**)error;
- (BOOL)isEqualToFeatureValue:(MLFeatureValue*)value;
@end

@interface MLDictionaryFeatureProvider : NSObject <MLFeatureProvider, NSFastEnumeration, NSSecureCoding>
ML_STORAGE(MLDictionaryFeatureProvider)
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureValue*>* dictionary;
- (nullable instancetype)initWithDictionary:(NSDictionary<NSString*, id>*)dictionary error:(NSError**)error;
- (nullable MLFeatureValue*)objectForKeyedSubscript:(NSString*)featureName;
@end

API_AVAILABLE(macos(10.14))
@interface MLArrayBatchProvider : NSObject <MLBatchProvider>
ML_STORAGE(MLArrayBatchProvider)
@property(readonly, nonatomic) NSArray<id<MLFeatureProvider>>* array;
- (instancetype)initWithFeatureProviderArray:(NSArray<id<MLFeatureProvider>>*)array;
- (nullable instancetype)initWithDictionary:(NSDictionary<NSString*, NSArray*>*)dictionary error:(NSError**)error;
@end

NS_ASSUME_NONNULL_END
