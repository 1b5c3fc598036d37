// Compute devices and compute plans of the simulated machine: a CPU, a GPU and a neural engine that exist on paper.
#include <CoreML/CoreML.h>

#include <exception>
#include <map>
#include <string>
#include <utility>

#include "framework/errors.h"
#include "framework/model.h"
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

struct MLModelStructureProgramBindingStorage {
  Strong<NSString*> name;
};
struct MLModelStructureProgramArgumentStorage {
  Strong<NSArray*> bindings;
};
struct MLModelStructureProgramNamedValueTypeStorage {
  Strong<NSString*> name;
};
struct MLModelStructureProgramOperationStorage {
  Strong<NSString*> op;
  Strong<NSDictionary*> inputs;
  Strong<NSArray*> outputs;
  double cost = 0;
};
struct MLModelStructureProgramBlockStorage {
  Strong<NSArray*> inputs, output_names, operations;
};
struct MLModelStructureProgramFunctionStorage {
  Strong<NSArray*> inputs;
  Strong<MLModelStructureProgramBlock*> block;
};
struct MLModelStructureProgramStorage {
  Strong<NSDictionary*> functions;
};
struct MLModelStructureStorage {
  Strong<MLModelStructureProgram*> program;
};
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

#define DELETE_STORAGE \
  -(void)dealloc {     \
    delete _storage;   \
    [super dealloc];   \
  }

@implementation MLModelStructureProgramBinding
DELETE_STORAGE
- (nullable NSString*)name {
  return _storage->name.borrow();
}
@end
@implementation MLModelStructureProgramArgument
DELETE_STORAGE
- (NSArray<MLModelStructureProgramBinding*>*)bindings {
  return _storage->bindings.borrow();
}
@end
@implementation MLModelStructureProgramNamedValueType
DELETE_STORAGE
- (NSString*)name {
  return _storage->name.borrow();
}
@end
@implementation MLModelStructureProgramOperation
DELETE_STORAGE
- (NSString*)operatorName {
  return _storage->op.borrow();
}
- (NSDictionary<NSString*, MLModelStructureProgramArgument*>*)inputs {
  return _storage->inputs.borrow();
}
- (NSArray<MLModelStructureProgramNamedValueType*>*)outputs {
  return _storage->outputs.borrow();
}
- (NSArray<MLModelStructureProgramBlock*>*)blocks {
  return @[];
}
@end
@implementation MLModelStructureProgramBlock
DELETE_STORAGE
- (NSArray<MLModelStructureProgramNamedValueType*>*)inputs {
  return _storage->inputs.borrow();
}
- (NSArray<NSString*>*)outputNames {
  return _storage->output_names.borrow();
}
- (NSArray<MLModelStructureProgramOperation*>*)operations {
  return _storage->operations.borrow();
}
@end
@implementation MLModelStructureProgramFunction
DELETE_STORAGE
- (NSArray<MLModelStructureProgramNamedValueType*>*)inputs {
  return _storage->inputs.borrow();
}
- (MLModelStructureProgramBlock*)block {
  return _storage->block.borrow();
}
@end
@implementation MLModelStructureProgram
DELETE_STORAGE
- (NSDictionary<NSString*, MLModelStructureProgramFunction*>*)functions {
  return _storage->functions.borrow();
}
@end
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

MLModelStructureProgramNamedValueType* make_value(const std::string& name) {
  MLModelStructureProgramNamedValueType* value = [[MLModelStructureProgramNamedValueType alloc] autorelease];
  value->_storage = new MLModelStructureProgramNamedValueTypeStorage{Strong<NSString*>(to_ns(name))};
  return value;
}

NSArray* make_values(const std::vector<std::string>& names) {
  NSMutableArray* values = [NSMutableArray array];
  for (const std::string& name : names) {
    [values addObject:make_value(name)];
  }
  return values;
}

MLModelStructureProgramOperation* make_operation(const mil::OperationInfo& info) {
  NSMutableDictionary* inputs = [NSMutableDictionary dictionary];
  for (const auto& [argument, names] : info.inputs) {
    NSMutableArray* bindings = [NSMutableArray array];
    for (const std::string& name : names) {
      MLModelStructureProgramBinding* binding = [[MLModelStructureProgramBinding alloc] autorelease];
      binding->_storage = new MLModelStructureProgramBindingStorage{name.empty() ? Strong<NSString*>()
                                                                                 : Strong<NSString*>(to_ns(name))};
      [bindings addObject:binding];
    }
    MLModelStructureProgramArgument* made = [[MLModelStructureProgramArgument alloc] autorelease];
    made->_storage = new MLModelStructureProgramArgumentStorage{Strong<NSArray*>(bindings)};
    [inputs setObject:made forKey:to_ns(argument)];
  }
  MLModelStructureProgramOperation* operation = [[MLModelStructureProgramOperation alloc] autorelease];
  operation->_storage =
      new MLModelStructureProgramOperationStorage{Strong<NSString*>(to_ns(info.type)), Strong<NSDictionary*>(inputs),
                                                  Strong<NSArray*>(make_values(info.outputs)), info.cost};
  return operation;
}

MLModelStructureProgramFunction* make_function(const mil::Program& program) {
  const mil::FunctionDescription& description = program.description();
  std::vector<std::string> inputs;
  NSMutableArray* output_names = [NSMutableArray array];
  for (const auto& feature : description.inputs) {
    inputs.push_back(feature.name);
  }
  for (const auto& feature : description.outputs) {
    [output_names addObject:to_ns(feature.name)];
  }
  NSMutableArray* operations = [NSMutableArray array];
  for (const mil::OperationInfo& info : program.operations()) {
    [operations addObject:make_operation(info)];
  }
  MLModelStructureProgramBlock* block = [[MLModelStructureProgramBlock alloc] autorelease];
  block->_storage = new MLModelStructureProgramBlockStorage{
      Strong<NSArray*>(make_values(inputs)), Strong<NSArray*>(output_names), Strong<NSArray*>(operations)};
  MLModelStructureProgramFunction* function = [[MLModelStructureProgramFunction alloc] autorelease];
  function->_storage = new MLModelStructureProgramFunctionStorage{Strong<NSArray*>(make_values(inputs)),
                                                                  Strong<MLModelStructureProgramBlock*>(block)};
  return function;
}

// `only`: nil for every function of the package.
MLModelStructure* make_structure(NSURL* url, NSString* only, NSError** error) {
  const auto package = open_compiled(url, error);
  if (package == nullptr) {
    return nil;
  }
  NSMutableDictionary* functions = [NSMutableDictionary dictionary];
  try {
    for (const mil::FunctionDescription& function : package->functions()) {
      if (only == nil || to_std(only) == function.name) {
        const auto program = mil::Program::create(package, {function.name, mil::Numerics::kFloat32, 1});
        [functions setObject:make_function(*program) forKey:to_ns(function.name)];
      }
    }
  } catch (const std::exception& exception) {
    fail(error, MLModelErrorGeneric, "Failed to read the model's structure: " + std::string(exception.what()));
    return nil;
  }
  MLModelStructureProgram* program = [[MLModelStructureProgram alloc] autorelease];
  program->_storage = new MLModelStructureProgramStorage{Strong<NSDictionary*>(functions)};
  MLModelStructure* structure = [[MLModelStructure alloc] autorelease];
  structure->_storage = new MLModelStructureStorage{Strong<MLModelStructureProgram*>(program)};
  return structure;
}

// The simulated placement: dense algebra prefers the neural engine, then the GPU; bookkeeping stays on the CPU.
bool is_heavy(NSString* op) {
  NSString* name = [[op componentsSeparatedByString:@"."] lastObject];
  return [@[ @"linear", @"matmul", @"conv", @"scaled_dot_product_attention", @"softmax", @"layer_norm", @"gelu" ]
      containsObject:name];
}

}  // namespace

@implementation MLModelStructure
DELETE_STORAGE
+ (void)loadContentsOfURL:(NSURL*)url
        completionHandler:(void (^)(MLModelStructure* _Nullable structure, NSError* _Nullable error))handler {
  const Strong<NSURL*> from = url;
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([from, done] {
    NSError* error = nil;
    MLModelStructure* structure = make_structure(from.get(), nil, &error);
    complete<MLModelStructure*>(done, structure, error);
  });
}
- (nullable MLModelStructureProgram*)program {
  return _storage->program.borrow();
}
- (nullable MLModelStructureNeuralNetwork*)neuralNetwork {
  return nil;
}
@end

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
  cost->_storage = new MLComputePlanCostStorage{operation->_storage->cost};
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
