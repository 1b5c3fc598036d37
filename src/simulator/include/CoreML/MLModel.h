// Loading, compiling and predicting.
// Threads: one MLModel is used by one thread at a time; completion handlers run on any thread.
// Ownership: newState returns +1; everything else follows the Objective-C naming rules.
#pragma once

#import <CoreML/MLComputePlan.h>
#import <CoreML/MLFeatureValue.h>
#import <CoreML/MLModelDescription.h>

NS_ASSUME_NONNULL_BEGIN

API_AVAILABLE(macos(14.4))
@interface MLOptimizationHints : NSObject <NSCopying, NSSecureCoding>
ML_STORAGE(MLOptimizationHints)
@property(readwrite, nonatomic, assign) MLReshapeFrequencyHint reshapeFrequency API_AVAILABLE(macos(14.4));
@property(readwrite, nonatomic, assign) MLSpecializationStrategy specializationStrategy API_AVAILABLE(macos(15.0));
@end

API_AVAILABLE(macos(10.14))
@interface MLModelConfiguration : NSObject <NSCopying, NSSecureCoding>
ML_STORAGE(MLModelConfiguration)
@property(readwrite, copy, nullable) NSString* modelDisplayName API_AVAILABLE(macos(13.0));
@property(readwrite) MLComputeUnits computeUnits;
@property(readwrite, nonatomic, copy) MLOptimizationHints* optimizationHints API_AVAILABLE(macos(14.4));
@property(readwrite) BOOL allowLowPrecisionAccumulationOnGPU API_AVAILABLE(macos(10.15));
@property(readwrite, nonatomic, copy, nullable) NSString* functionName API_AVAILABLE(macos(15.0));
@end

@interface MLPredictionOptions : NSObject
ML_STORAGE(MLPredictionOptions)
@property(readwrite, nonatomic) BOOL usesCPUOnly API_DEPRECATED("use MLModelConfiguration", macos(10.13, 12.0));
@property(readwrite, nonatomic, copy) NSDictionary<NSString*, id>* outputBackings API_AVAILABLE(macos(11.0));
@end

ML_FINAL API_AVAILABLE(macos(15.0)) @interface MLState : NSObject
ML_STORAGE(MLState)
ML_NO_INIT
- (void)getMultiArrayForStateNamed:(NSString*)stateName handler:(void(NS_NOESCAPE ^)(MLMultiArray* buffer))handler;
@end

API_AVAILABLE(macos(13.0))
@interface MLModelAsset : NSObject
ML_STORAGE(MLModelAsset)
ML_NO_INIT
+ (nullable instancetype)modelAssetWithURL:(NSURL*)compiledModelURL error:(NSError**)error API_AVAILABLE(macos(15.0));
- (void)modelDescriptionWithCompletionHandler:(void (^)(MLModelDescription* _Nullable description,
                                                        NSError* _Nullable error))handler API_AVAILABLE(macos(15.0));
- (void)modelDescriptionOfFunctionNamed:(NSString*)functionName
                      completionHandler:(void (^)(MLModelDescription* _Nullable description,
                                                  NSError* _Nullable error))handler API_AVAILABLE(macos(15.0));
- (void)functionNamesWithCompletionHandler:(void (^)(NSArray<NSString*>* _Nullable functionNames,
                                                     NSError* _Nullable error))handler API_AVAILABLE(macos(15.0));
@end

@interface MLModel : NSObject
ML_STORAGE(MLModel)
@property(readonly, nonatomic) MLModelDescription* modelDescription;
@property(readonly, nonatomic) MLModelConfiguration* configuration API_AVAILABLE(macos(10.14));
+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url error:(NSError**)error;
+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url
                                  configuration:(MLModelConfiguration*)configuration
                                          error:(NSError**)error API_AVAILABLE(macos(10.14));
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLModel* _Nullable model, NSError* _Nullable error))handler
    API_AVAILABLE(macos(11.0));
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input error:(NSError**)error;
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError**)error;
- (void)predictionFromFeatures:(id<MLFeatureProvider>)input
             completionHandler:(void (^)(id<MLFeatureProvider> _Nullable output,
                                         NSError* _Nullable error))completionHandler API_AVAILABLE(macos(14.0));
- (void)predictionFromFeatures:(id<MLFeatureProvider>)input
                       options:(MLPredictionOptions*)options
             completionHandler:(void (^)(id<MLFeatureProvider> _Nullable output,
                                         NSError* _Nullable error))completionHandler API_AVAILABLE(macos(14.0));
- (nullable id<MLBatchProvider>)predictionsFromBatch:(id<MLBatchProvider>)inputBatch
                                               error:(NSError**)error API_AVAILABLE(macos(10.14));
- (nullable id<MLBatchProvider>)predictionsFromBatch:(id<MLBatchProvider>)inputBatch
                                             options:(MLPredictionOptions*)options
                                               error:(NSError**)error API_AVAILABLE(macos(10.14));
@end

@interface MLModel (MLModelCompilation)
+ (nullable NSURL*)compileModelAtURL:(NSURL*)modelURL
                               error:(NSError**)error
    API_DEPRECATED("use compileModelAtURL:completionHandler:", macos(10.13, API_TO_BE_DEPRECATED));
+ (void)compileModelAtURL:(NSURL*)modelURL
        completionHandler:(void (^)(NSURL* _Nullable compiledModelURL, NSError* _Nullable error))handler
    API_AVAILABLE(macos(13.0));
@end

@interface MLModel (MLComputeDevice)
@property(class, readonly, nonatomic, copy)
    NSArray<id<MLComputeDeviceProtocol>>* availableComputeDevices API_AVAILABLE(macos(14.0));
@end

@interface MLModel (MLState)
- (MLState*)newState API_AVAILABLE(macos(15.0));
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                   error:(NSError**)error API_AVAILABLE(macos(15.0));
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError**)error API_AVAILABLE(macos(15.0));
- (void)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                    usingState:(MLState*)state
                       options:(MLPredictionOptions*)options
             completionHandler:(void (^)(id<MLFeatureProvider> _Nullable output,
                                         NSError* _Nullable error))completionHandler API_AVAILABLE(macos(15.0));
@end

NS_ASSUME_NONNULL_END
