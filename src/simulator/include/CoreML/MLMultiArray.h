// MLMultiArray: an n-dimensional array over memory that it, its creator or a pixel buffer owns.
// Threads: not safe for concurrent use. Strides count elements, not bytes.
// Ownership: a deallocator runs when the array is deallocated or switches its storage, on any thread.
#pragma once

#import <CoreML/MLBase.h>

NS_ASSUME_NONNULL_BEGIN

@interface MLMultiArray : NSObject <NSSecureCoding>
ML_STORAGE(MLMultiArray)
@property(readonly, nonatomic) void* dataPointer __attribute__((objc_returns_inner_pointer)) API_DEPRECATED(
    "use getBytesWithHandler: or getMutableBytesWithHandler:", macos(10.13, API_TO_BE_DEPRECATED));
@property(readonly, nonatomic) MLMultiArrayDataType dataType;
@property(readonly, nonatomic) NSArray<NSNumber*>* shape;
@property(readonly, nonatomic) NSArray<NSNumber*>* strides;
@property(readonly, nonatomic) NSInteger count;
@property(readonly, nonatomic, nullable) CVPixelBufferRef pixelBuffer API_AVAILABLE(macos(12.0));
- (nullable instancetype)initWithShape:(NSArray<NSNumber*>*)shape
                              dataType:(MLMultiArrayDataType)dataType
                                 error:(NSError**)error;
- (instancetype)initWithShape:(NSArray<NSNumber*>*)shape
                     dataType:(MLMultiArrayDataType)dataType
                      strides:(NSArray<NSNumber*>*)strides API_AVAILABLE(macos(15.0));
- (nullable instancetype)initWithDataPointer:(void*)dataPointer
                                       shape:(NSArray<NSNumber*>*)shape
                                    dataType:(MLMultiArrayDataType)dataType
                                     strides:(NSArray<NSNumber*>*)strides
                                 deallocator:(void (^_Nullable)(void* bytes))deallocator
                                       error:(NSError**)error;
- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)pixelBuffer
                              shape:(NSArray<NSNumber*>*)shape API_AVAILABLE(macos(12.0));
- (void)getBytesWithHandler:(void(NS_NOESCAPE ^)(const void* bytes, NSInteger size))handler API_AVAILABLE(macos(12.3));
- (void)getMutableBytesWithHandler:(void(NS_NOESCAPE ^)(void* mutableBytes, NSInteger size,
                                                        NSArray<NSNumber*>* strides))handler API_AVAILABLE(macos(12.3));
+ (instancetype)multiArrayByConcatenatingMultiArrays:(NSArray<MLMultiArray*>*)multiArrays
                                           alongAxis:(NSInteger)axis
                                            dataType:(MLMultiArrayDataType)dataType API_AVAILABLE(macos(11.0));
- (NSNumber*)objectAtIndexedSubscript:(NSInteger)index;
- (NSNumber*)objectForKeyedSubscript:(NSArray<NSNumber*>*)key;
- (void)setObject:(NSNumber*)object atIndexedSubscript:(NSInteger)index;
- (void)setObject:(NSNumber*)object forKeyedSubscript:(NSArray<NSNumber*>*)key;
- (void)transferToMultiArray:(MLMultiArray*)destinationMultiArray API_AVAILABLE(macos(15.0));
@end

NS_ASSUME_NONNULL_END
