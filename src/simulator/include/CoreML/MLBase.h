// Macros, enumerations and constants shared by the Core ML declarations.
// Threads: any. Ownership: none.
// ML_STORAGE adds the simulator's one instance variable where the runtime has the fragile ABI (all instance variables
// must be in the primary interface); on macOS it is empty and the classes are only declared.
#pragma once

#import <Foundation/Foundation.h>

#include <CoreVideo/CoreVideo.h>

#ifdef __APPLE__
#define ML_STORAGE(T)
#else
#define ML_STORAGE(T)            \
  {                              \
   @public                       \
    struct T##Storage* _storage; \
  }
#ifndef NS_NOESCAPE
#define NS_NOESCAPE __attribute__((noescape))
#endif
#endif
#define ML_FINAL __attribute__((objc_subclassing_restricted))
#define ML_NO_INIT                                  \
  -(instancetype)init __attribute__((unavailable)); \
  +(instancetype) new __attribute__((unavailable));
#ifdef __cplusplus
#define ML_EXPORT extern "C"
#else
#define ML_EXPORT extern
#endif

NS_ASSUME_NONNULL_BEGIN

@class MLModel, MLModelAsset, MLModelConfiguration, MLModelDescription, MLFeatureDescription, MLFeatureValue,
    MLMultiArray, MLSequence, MLState, MLStateConstraint, MLImageConstraint, MLDictionaryConstraint,
    MLSequenceConstraint, MLParameterKey;
@protocol MTLDevice;

typedef NS_ENUM(NSInteger, MLComputeUnits) {
  MLComputeUnitsCPUOnly = 0,
  MLComputeUnitsCPUAndGPU = 1,
  MLComputeUnitsAll API_AVAILABLE(macos(10.14)) = 2,
  MLComputeUnitsCPUAndNeuralEngine API_AVAILABLE(macos(13.0)) = 3,
};
typedef NS_ENUM(NSInteger, MLFeatureType) {
  MLFeatureTypeInvalid = 0,
  MLFeatureTypeInt64 = 1,
  MLFeatureTypeDouble = 2,
  MLFeatureTypeString = 3,
  MLFeatureTypeImage = 4,
  MLFeatureTypeMultiArray = 5,
  MLFeatureTypeDictionary = 6,
  MLFeatureTypeSequence API_AVAILABLE(macos(10.14)) = 7,
  MLFeatureTypeState API_AVAILABLE(macos(15.0)) = 8,
};
typedef NS_ENUM(NSInteger, MLMultiArrayDataType) {
  MLMultiArrayDataTypeDouble = 0x10000 | 64,
  MLMultiArrayDataTypeFloat64 API_AVAILABLE(macos(11.0)) = 0x10000 | 64,
  MLMultiArrayDataTypeFloat32 = 0x10000 | 32,
  MLMultiArrayDataTypeFloat16 API_AVAILABLE(macos(12.0)) = 0x10000 | 16,
  MLMultiArrayDataTypeFloat API_AVAILABLE(macos(11.0)) = 0x10000 | 32,
  MLMultiArrayDataTypeInt32 = 0x20000 | 32,
  MLMultiArrayDataTypeInt8 API_AVAILABLE(macos(26.0)) = 0x20000 | 8,
};
typedef NS_ENUM(NSInteger, MLMultiArrayShapeConstraintType) {
  MLMultiArrayShapeConstraintTypeUnspecified = 1,
  MLMultiArrayShapeConstraintTypeEnumerated = 2,
  MLMultiArrayShapeConstraintTypeRange = 3,
};
typedef NS_ENUM(NSInteger, MLReshapeFrequencyHint) {
  MLReshapeFrequencyHintFrequent = 0,
  MLReshapeFrequencyHintInfrequent = 1,
};
typedef NS_ENUM(NSInteger, MLSpecializationStrategy) {
  MLSpecializationStrategyDefault = 0,
  MLSpecializationStrategyFastPrediction = 1,
};
typedef NS_ENUM(NSInteger, MLModelError) {
  MLModelErrorGeneric = 0,
  MLModelErrorFeatureType = 1,
  MLModelErrorIO = 3,
  MLModelErrorCustomLayer = 4,
  MLModelErrorCustomModel = 5,
  MLModelErrorUpdate = 6,
  MLModelErrorParameters = 7,
  MLModelErrorModelDecryptionKeyFetch = 8,
  MLModelErrorModelDecryption = 9,
  MLModelErrorModelCollection = 10,
  MLModelErrorPredictionCancelled = 11,
};

ML_EXPORT NSString* const MLModelErrorDomain API_AVAILABLE(macos(10.13));
typedef NSString* MLModelMetadataKey;
ML_EXPORT MLModelMetadataKey const MLModelDescriptionKey;
ML_EXPORT MLModelMetadataKey const MLModelVersionStringKey;
ML_EXPORT MLModelMetadataKey const MLModelAuthorKey;
ML_EXPORT MLModelMetadataKey const MLModelLicenseKey;
ML_EXPORT MLModelMetadataKey const MLModelCreatorDefinedKey;

NS_ASSUME_NONNULL_END
