#include "framework/model_structure.h"

#include <exception>
#include <string>
#include <vector>

#include "framework/errors.h"
#include "framework/model.h"
#include "framework/strong.h"

using namespace coremlsim;

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

}  // namespace

namespace coremlsim {

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

double cost_of(MLModelStructureProgramOperation* operation) { return operation->_storage->cost; }

}  // namespace coremlsim

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
