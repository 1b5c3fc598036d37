#import "kvbacking/model.h"

#import <CoreML/CoreML.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#import "coreml/async_wait.h"
#import "coreml/availability.h"
#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/model_impl.h"
#include "kvbacking/host.h"

namespace kvbacking {
namespace {

constexpr double kListTimeout_s = 120.0;

using Descriptions = NSDictionary<NSString*, MLFeatureDescription*>;

std::vector<TensorSpec> specs(Descriptions* descriptions) {
  std::vector<TensorSpec> result;
  for (NSString* name in descriptions) result.push_back(tensor_spec(name, [descriptions objectForKey:name]));
  std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

FeaturePlan plan_feature(const TensorSpec& spec, Descriptions* descriptions) {
  FeaturePlan plan;
  plan.spec = spec;
  plan.name = retain(to_nsstring(spec.name));
  plan.description = retain([descriptions objectForKey:plan.name.get()]);
  if (spec.kind == FeatureKind::kMultiArray && spec.dtype && !spec.shape.empty()) {
    plan.dense = Layout::dense(*spec.dtype, spec.shape);
    plan.geometry = ArrayGeometry(*plan.dense);
  }
  return plan;
}

void describe_model(Model::Impl& impl) {
  MLModelDescription* description = [impl.model.get() modelDescription];
  impl.inputs = specs([description inputDescriptionsByName]);
  impl.outputs = specs([description outputDescriptionsByName]);
  KVB_ASKED_AT_RUN_TIME_BEGIN
  if (has_state()) impl.states = specs([description stateDescriptionsByName]);
  KVB_ASKED_AT_RUN_TIME_END
  for (const TensorSpec& spec : impl.inputs) {
    impl.input_plans.push_back(plan_feature(spec, [description inputDescriptionsByName]));
  }
  for (const TensorSpec& spec : impl.outputs) {
    impl.output_plans.emplace(spec.name, plan_feature(spec, [description outputDescriptionsByName]));
  }
}

void load_compiled(Model::Impl& impl, const CompiledModel& compiled, const LoadOptions& options) {
  const auto configuration = model_configuration(options.compute_units, options.function);
  NSError* error = nil;
  impl.model = retain([MLModel modelWithContentsOfURL:[NSURL fileURLWithPath:to_nsstring(compiled.path) isDirectory:YES]
                                        configuration:configuration.get()
                                                error:&error]);
  if (!impl.model) throw nserror_error(ErrorCode::kModel, "model.load", error);
}

struct Names {
  RetainPtr<NSArray<NSString*>*> names;
  RetainPtr<NSError*> error;
};

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model::~Model() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  @autoreleasepool {
    impl_.reset();
  }
}

std::shared_ptr<Model> Model::load(const std::string& path, const LoadOptions& options) {
  require_same_process();
  auto impl = guarded("model.load", ErrorCode::kModel, [&] {
    auto made = std::make_unique<Impl>();
    made->compute_units = options.compute_units;
    made->function = options.function;
    CompiledModel compiled = compiled_model(path, options, true);
    if (compiled.from_cache) {
      try {
        load_compiled(*made, compiled, options);
      } catch (const Error&) {  // a damaged or foreign entry: compile it again, once
        compiled = compiled_model(path, options, false);
        load_compiled(*made, compiled, options);
      }
    } else {
      load_compiled(*made, compiled, options);
    }
    made->compiled_path = compiled.path;
    made->temporary = std::move(compiled.temporary);
    made->plain_options = adopt([[MLPredictionOptions alloc] init]);
    describe_model(*made);
    return made;
  });
  return std::shared_ptr<Model>(new Model(std::move(impl)));
}

const std::vector<TensorSpec>& Model::inputs() const noexcept { return impl_->inputs; }
const std::vector<TensorSpec>& Model::outputs() const noexcept { return impl_->outputs; }
const std::vector<TensorSpec>& Model::states() const noexcept { return impl_->states; }
const std::string& Model::compiled_path() const noexcept { return impl_->compiled_path; }
ComputeUnits Model::compute_units() const noexcept { return impl_->compute_units; }

void Model::release_idle_inputs() noexcept {
  if (is_forked_child()) return;
  for (const FeaturePlan& plan : impl_->input_plans) plan.pool->release_idle();
}

std::vector<std::string> Model::functions() const {
  require_same_process();
  return guarded("model.functions", ErrorCode::kModel, [&]() -> std::vector<std::string> {
    if (!has_functions()) return {};
    NSError* error = nil;
    KVB_ASKED_AT_RUN_TIME_BEGIN
    MLModelAsset* asset = [MLModelAsset modelAssetWithURL:[NSURL fileURLWithPath:to_nsstring(impl_->compiled_path)]
                                                    error:&error];
    if (asset == nil) throw nserror_error(ErrorCode::kModel, "model.functions", error);
    std::shared_ptr<Answer<Names>> answer = std::make_shared<Answer<Names>>();
    [asset functionNamesWithCompletionHandler:^(NSArray<NSString*>* names, NSError* failure) {
      answer->deliver({retain(names), retain(failure)});
    }];
    KVB_ASKED_AT_RUN_TIME_END
    const Names listed = answer->wait(kListTimeout_s, "model.functions");
    if (!listed.names) throw nserror_error(ErrorCode::kModel, "model.functions", listed.error.get());
    std::vector<std::string> result;
    for (NSString* name in listed.names.get()) result.push_back(to_string(name));
    std::sort(result.begin(), result.end());
    return result;
  });
}

}  // namespace kvbacking
