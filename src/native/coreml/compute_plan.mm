#import "kvbacking/compute_plan.h"

#import <CoreML/CoreML.h>

#import "coreml/async_wait.h"
#import "coreml/availability.h"
#import "coreml/guard.h"
#import "coreml/model_impl.h"
#include "kvbacking/host.h"

namespace kvbacking {
namespace {

KVB_ASKED_AT_RUN_TIME_BEGIN

struct LoadedPlan {
  RetainPtr<MLComputePlan*> plan;
  RetainPtr<NSError*> error;
};

RetainPtr<MLComputePlan*> load_plan(const Model::Impl& model, double timeout_s) {
  std::shared_ptr<Answer<LoadedPlan>> answer = std::make_shared<Answer<LoadedPlan>>();
  const auto configuration = model_configuration(model.compute_units, model.function);
  [MLComputePlan loadContentsOfURL:[NSURL fileURLWithPath:to_nsstring(model.compiled_path)]
                     configuration:configuration.get() completionHandler:^(MLComputePlan* plan, NSError* error) {
                       answer->deliver({retain(plan), retain(error)});
                     }];
  LoadedPlan loaded = answer->wait(timeout_s, "compute_plan");
  if (!loaded.plan) throw nserror_error(ErrorCode::kModel, "compute_plan", loaded.error.get());
  return std::move(loaded.plan);
}

std::string device_name(id<MLComputeDeviceProtocol> device) {
  if ([device isKindOfClass:[MLCPUComputeDevice class]]) return "cpu";
  if ([device isKindOfClass:[MLGPUComputeDevice class]]) return "gpu";
  if ([device isKindOfClass:[MLNeuralEngineComputeDevice class]]) return "neural_engine";
  return "unknown";
}

void fill_devices(PlannedOperation& planned, MLComputePlanDeviceUsage* usage) {
  if (usage == nil) return;
  planned.preferred_device = device_name([usage preferredComputeDevice]);
  for (id<MLComputeDeviceProtocol> device in [usage supportedComputeDevices]) {
    planned.supported_devices.push_back(device_name(device));
  }
}

void list_block(MLComputePlan* plan, const std::string& function, MLModelStructureProgramBlock* block,
                std::vector<PlannedOperation>& result) {
  for (MLModelStructureProgramOperation* operation in [block operations]) {
    PlannedOperation planned;
    planned.function = function;
    planned.op = to_string([operation operatorName]);
    for (MLModelStructureProgramNamedValueType* output in [operation outputs]) {
      planned.outputs.push_back(to_string([output name]));
    }
    fill_devices(planned, [plan computeDeviceUsageForMLProgramOperation:operation]);
    if (MLComputePlanCost* cost = [plan estimatedCostOfMLProgramOperation:operation]; cost != nil) {
      planned.cost = [cost weight];
    }
    result.push_back(std::move(planned));
    for (MLModelStructureProgramBlock* inner in [operation blocks]) list_block(plan, function, inner, result);
  }
}

void list_structure(MLComputePlan* plan, MLModelStructure* structure, std::vector<PlannedOperation>& result) {
  NSDictionary<NSString*, MLModelStructureProgramFunction*>* functions = [[structure program] functions];
  for (NSString* name in functions) {
    list_block(plan, to_string(name), [[functions objectForKey:name] block], result);
  }
}

KVB_ASKED_AT_RUN_TIME_END

}  // namespace

std::vector<PlannedOperation> compute_plan(const Model& model, double timeout_s) {
  require_same_process();
  return guarded("compute_plan", ErrorCode::kModel, [&] {
    if (!has_compute_plan()) {
      throw Error(ErrorCode::kUnsupportedPlatform, "[compute_plan] a compute plan needs macOS 14.4 or later");
    }
    const auto plan = load_plan(model.impl(), timeout_s);
    std::vector<PlannedOperation> result;
    KVB_ASKED_AT_RUN_TIME_BEGIN
    list_structure(plan.get(), [plan.get() modelStructure], result);
    KVB_ASKED_AT_RUN_TIME_END
    if (result.empty()) {
      throw Error(ErrorCode::kModel, "[compute_plan] the model has no ML program, whose operations could be listed");
    }
    return result;
  });
}

}  // namespace kvbacking
