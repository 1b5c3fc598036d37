// Compute devices and compute plans of the simulated machine: a CPU, a GPU and a neural engine that exist on paper.
#include <CoreML/CoreML.h>

#include "framework/model.h"
#include "framework/model_structure.h"
#include "framework/strong.h"

using namespace coremlsim;

// One instance per device and process, as identity is how a client compares them.
@implementation MLCPUComputeDevice
+ (instancetype)shared {
  static MLCPUComputeDevice* device = [MLCPUComputeDevice alloc];
  return device;
}
@end
@implementation MLGPUComputeDevice
+ (instancetype)shared {
  static MLGPUComputeDevice* device = [MLGPUComputeDevice alloc];
  return device;
}
@end
@implementation MLNeuralEngineComputeDevice
+ (instancetype)shared {
  static MLNeuralEngineComputeDevice* device = [MLNeuralEngineComputeDevice alloc];
  return device;
}
- (NSInteger)totalCoreCount {
  return 16;
}
@end

NSArray<id<MLComputeDeviceProtocol>>* MLAllComputeDevices() {
  return @[ [MLCPUComputeDevice shared], [MLGPUComputeDevice shared], [MLNeuralEngineComputeDevice shared] ];
}

@implementation MLModel (MLComputeDevice)
+ (NSArray<id<MLComputeDeviceProtocol>>*)availableComputeDevices {
  return MLAllComputeDevices();
}
@end

struct MLComputePlanCostStorage {
  double weight = 0;
};
struct MLComputePlanDeviceUsageStorage {
  Strong<NSArray*> supported;
  Strong<id> preferred;
};
struct MLComputePlanStorage {
  Strong<MLModelStructure*> structure;
  MLComputeUnits units = MLComputeUnitsAll;
};

@implementation MLComputePlanCost
DELETE_STORAGE
- (double)weight {
  return _storage->weight;
}
@end
@implementation MLComputePlanDeviceUsage
DELETE_STORAGE
- (NSArray<id<MLComputeDeviceProtocol>>*)supportedComputeDevices {
  return _storage->supported.borrow();
}
- (id<MLComputeDeviceProtocol>)preferredComputeDevice {
  return _storage->preferred.borrow();
}
@end

namespace {

// The simulated placement: dense algebra prefers the neural engine, then the GPU; bookkeeping stays on the CPU.
bool is_heavy(NSString* op) {
  NSString* name = [[op componentsSeparatedByString:@"."] lastObject];
  return [@[ @"linear", @"matmul", @"conv", @"scaled_dot_product_attention", @"softmax", @"layer_norm", @"gelu" ]
      containsObject:name];
}

}  // namespace

@implementation MLComputePlan
DELETE_STORAGE
+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLComputePlan* _Nullable plan, NSError* _Nullable error))handler {
  const Strong<NSURL*> from = url;
  const auto chosen = Strong<MLModelConfiguration*>::adopt([configuration copy]);
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([from, chosen, done] {
    NSError* error = nil;
    NSString* const function_name = api_available(15) ? [chosen.get() functionName] : nil;
    MLModelStructure* structure = make_structure(from.get(), function_name, &error);
    MLComputePlan* plan = nil;
    if (structure != nil) {
      plan = [[MLComputePlan alloc] autorelease];
      plan->_storage = new MLComputePlanStorage{Strong<MLModelStructure*>(structure), [chosen.get() computeUnits]};
    }
    complete<MLComputePlan*>(done, plan, error);
  });
}
- (MLModelStructure*)modelStructure {
  return _storage->structure.borrow();
}
- (nullable MLComputePlanCost*)estimatedCostOfMLProgramOperation:(MLModelStructureProgramOperation*)operation {
  MLComputePlanCost* cost = [[MLComputePlanCost alloc] autorelease];
  cost->_storage = new MLComputePlanCostStorage{cost_of(operation)};
  return cost;
}
- (nullable MLComputePlanDeviceUsage*)computeDeviceUsageForMLProgramOperation:
    (MLModelStructureProgramOperation*)operation {
  NSString* op = [operation operatorName];
  if ([op hasSuffix:@"const"]) {
    return nil;  // constants are not placed
  }
  NSMutableArray* supported = [NSMutableArray arrayWithObject:[MLCPUComputeDevice shared]];
  const MLComputeUnits units = _storage->units;
  if (units == MLComputeUnitsAll || units == MLComputeUnitsCPUAndGPU) {
    [supported addObject:[MLGPUComputeDevice shared]];
  }
  if ((units == MLComputeUnitsAll || units == MLComputeUnitsCPUAndNeuralEngine) && is_heavy(op)) {
    [supported addObject:[MLNeuralEngineComputeDevice shared]];
  }
  MLComputePlanDeviceUsage* usage = [[MLComputePlanDeviceUsage alloc] autorelease];
  usage->_storage = new MLComputePlanDeviceUsageStorage{
      Strong<NSArray*>(supported), Strong<id>(is_heavy(op) ? [supported lastObject] : [supported objectAtIndex:0])};
  return usage;
}
- (nullable MLComputePlanDeviceUsage*)computeDeviceUsageForNeuralNetworkLayer:
    (MLModelStructureNeuralNetworkLayer*)layer {
  (void)layer;
  return nil;
}
@end
