// What a model takes, gives and keeps: descriptions and constraints.
// Threads: immutable. Ownership: properties are borrowed; retain what must outlive the model.
#pragma once

#import <CoreML/MLBase.h>

NS_ASSUME_NONNULL_BEGIN

API_AVAILABLE(macos(10.14))
@interface MLMultiArrayShapeConstraint : NSObject <NSSecureCoding>
ML_STORAGE(MLMultiArrayShapeConstraint)
@property(readonly, nonatomic) MLMultiArrayShapeConstraintType type;
@property(readonly, nonatomic) NSArray<NSValue*>* sizeRangeForDimension;
@property(readonly, nonatomic) NSArray<NSArray<NSNumber*>*>* enumeratedShapes;
@end

@interface MLMultiArrayConstraint : NSObject <NSSecureCoding>
ML_STORAGE(MLMultiArrayConstraint)
@property(readonly, nonatomic) NSArray<NSNumber*>* shape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic) MLMultiArrayShapeConstraint* shapeConstraint API_AVAILABLE(macos(10.14));
@end

API_AVAILABLE(macos(15.0))
@interface MLStateConstraint : NSObject <NSSecureCoding>
ML_STORAGE(MLStateConstraint)
@property(readonly, nonatomic) NSArray<NSNumber*>* bufferShape;
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@end

@interface MLFeatureDescription : NSObject <NSCopying, NSSecureCoding>
ML_STORAGE(MLFeatureDescription)
@property(readonly, nonatomic, copy) NSString* name;
@property(readonly, nonatomic) MLFeatureType type;
@property(readonly, nonatomic, getter=isOptional) BOOL optional;
@property(readonly, nonatomic, nullable) MLMultiArrayConstraint* multiArrayConstraint;
@property(readonly, nonatomic, nullable) MLStateConstraint* stateConstraint API_AVAILABLE(macos(15.0));
- (BOOL)isAllowedValue:(MLFeatureValue*)value;
@end

@interface MLModelDescription : NSObject <NSSecureCoding>
ML_STORAGE(MLModelDescription)
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureDescription*>* inputDescriptionsByName;
@property(readonly, nonatomic) NSDictionary<NSString*, MLFeatureDescription*>* outputDescriptionsByName;
@property(readonly, nonatomic)
    NSDictionary<NSString*, MLFeatureDescription*>* stateDescriptionsByName API_AVAILABLE(macos(15.0));
@property(readonly, nonatomic, copy, nullable) NSString* predictedFeatureName;
@property(readonly, nonatomic, copy, nullable) NSString* predictedProbabilitiesName;
@property(readonly, nonatomic) NSDictionary<MLModelMetadataKey, id>* metadata;
@property(readonly, nonatomic, copy, nullable) NSArray<id>* classLabels API_AVAILABLE(macos(11.0));
@property(readonly, nonatomic) BOOL isUpdatable API_AVAILABLE(macos(10.15));
@end

NS_ASSUME_NONNULL_END
