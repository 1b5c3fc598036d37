// Load and prediction options.
#include <CoreML/CoreML.h>

#include "framework/api_gate.h"
#include "framework/errors.h"
#include "framework/strong.h"

using coremlsim::Strong;

struct MLOptimizationHintsStorage {
  MLReshapeFrequencyHint reshape = MLReshapeFrequencyHintFrequent;
  MLSpecializationStrategy strategy = MLSpecializationStrategyDefault;
};
struct MLModelConfigurationStorage {
  MLComputeUnits units = MLComputeUnitsAll;
  BOOL low_precision = NO;
  Strong<NSString*> display_name, function_name;
  Strong<MLOptimizationHints*> hints;
};
struct MLPredictionOptionsStorage {
  BOOL cpu_only = NO;
  Strong<NSDictionary<NSString*, id>*> backings;
};

@implementation MLOptimizationHints

CORE_ML_SIMULATOR_GATED
CORE_ML_SIMULATOR_NO_CODING
- (instancetype)init {
  if ((self = [super init]) != nil) {
    _storage = new MLOptimizationHintsStorage;
  }
  return self;
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MLOptimizationHints* copy = [[MLOptimizationHints allocWithZone:zone] init];
  *copy->_storage = *_storage;
  return copy;
}
- (MLReshapeFrequencyHint)reshapeFrequency {
  return _storage->reshape;
}
- (void)setReshapeFrequency:(MLReshapeFrequencyHint)hint {
  _storage->reshape = hint;
}
- (MLSpecializationStrategy)specializationStrategy {
  return _storage->strategy;
}
- (void)setSpecializationStrategy:(MLSpecializationStrategy)strategy {
  _storage->strategy = strategy;
}
@end

@implementation MLModelConfiguration

CORE_ML_SIMULATOR_GATED
CORE_ML_SIMULATOR_NO_CODING
- (instancetype)init {
  if ((self = [super init]) != nil) {
    _storage = new MLModelConfigurationStorage;
    _storage->hints = Strong<MLOptimizationHints*>::adopt([[MLOptimizationHints alloc] init]);
  }
  return self;
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  MLModelConfiguration* copy = [[MLModelConfiguration allocWithZone:zone] init];
  *copy->_storage = *_storage;
  copy->_storage->hints = Strong<MLOptimizationHints*>::adopt([_storage->hints.get() copy]);
  return copy;
}
- (MLComputeUnits)computeUnits {
  return _storage->units;
}
- (void)setComputeUnits:(MLComputeUnits)units {
  _storage->units = units;
}
- (BOOL)allowLowPrecisionAccumulationOnGPU {
  return _storage->low_precision;
}
- (void)setAllowLowPrecisionAccumulationOnGPU:(BOOL)allow {
  _storage->low_precision = allow;
}
- (nullable NSString*)modelDisplayName {
  return _storage->display_name.borrow();
}
- (void)setModelDisplayName:(nullable NSString*)name {
  _storage->display_name = Strong<NSString*>::adopt([name copy]);
}
- (nullable NSString*)functionName {
  return _storage->function_name.borrow();
}
- (void)setFunctionName:(nullable NSString*)name {
  _storage->function_name = Strong<NSString*>::adopt([name copy]);
}
- (MLOptimizationHints*)optimizationHints {
  return _storage->hints.borrow();
}
- (void)setOptimizationHints:(MLOptimizationHints*)hints {
  _storage->hints = Strong<MLOptimizationHints*>::adopt([hints copy]);
}
@end

@implementation MLPredictionOptions
- (instancetype)init {
  if ((self = [super init]) != nil) {
    _storage = new MLPredictionOptionsStorage { NO, Strong<NSDictionary<NSString*, id>*>(@{}) };
  }
  return self;
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (BOOL)usesCPUOnly {
  return _storage->cpu_only;
}
- (void)setUsesCPUOnly:(BOOL)only {
  _storage->cpu_only = only;
}
- (NSDictionary<NSString*, id>*)outputBackings {
  return _storage->backings.borrow();
}
- (void)setOutputBackings:(NSDictionary<NSString*, id>*)backings {
  _storage->backings = Strong<NSDictionary<NSString*, id>*>::adopt([backings copy]);
}
@end
