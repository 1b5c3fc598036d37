// The plain control path without a contract: nothing proposed, every output copied into memory of ours.
#include <algorithm>
#include <optional>

#import "coreml/guard.h"
#import "coreml/inputs.h"
#import "coreml/model_impl.h"
#import "coreml/multi_array.h"
#import "coreml/predict.h"
#import "coreml/state_impl.h"
#include "kvbacking/copy.h"
#include "kvbacking/host.h"
#include "kvbacking/session.h"

namespace kvbacking {
namespace {

void require_arrays(const Model::Impl& model) {
  std::vector<CheckFailure> failures;
  for (const TensorSpec& spec : model.outputs) {
    if (spec.kind == FeatureKind::kMultiArray) continue;
    failures.push_back({spec.name, "descriptions", "a multi-array", spec.kind_name + ", which cannot be copied"});
  }
  if (failures.empty()) return;
  throw failures_error(ErrorCode::kContract, "[predict] not every output is an array", std::move(failures));
}

OwnedOutput copy_out(const std::string& name, MLMultiArray* array) {
  const ArrayDescription description = describe(array);
  const auto layout = description.layout();
  if (!layout) {
    throw failures_error(ErrorCode::kIntegrity, "[predict] an output cannot be read",
                         {{name, "layout_ok", "a dtype and strides that can be copied",
                           description.dtype_name + join_numbers(description.shape) + " strides " +
                               join_numbers(description.element_strides)}});
  }
  OwnedOutput output;
  output.name = name;
  output.layout = Layout::dense(layout->dtype, layout->shape);
  const auto memory = Allocation::create(std::max<std::size_t>(output.layout.byte_count(), 1));
  read_bytes(array, [&](const void* bytes, std::size_t byte_count) {
    if (layout->span_byte_count() > byte_count) {
      throw failures_error(ErrorCode::kIntegrity, "[predict] an output cannot be read",
                           {{name, "in_range", std::to_string(layout->span_byte_count()) + " readable bytes",
                             std::to_string(byte_count)}});
    }
    copy_elements(bytes, *layout, memory->payload(), output.layout);
  });
  output.memory = std::shared_ptr<void>(memory, memory->payload());
  return output;
}

}  // namespace

std::vector<OwnedOutput> predict_once(const Model& model, const std::vector<InputArray>& inputs,
                                      const std::shared_ptr<State>& state) {
  require_same_process();
  return guarded("predict", ErrorCode::kPrediction, [&] {
    Model::Impl& impl = model.impl();
    if (state && state->model().get() != &model) {
      throw Error(ErrorCode::kInvalidArgument, "[predict] the state belongs to another model");
    }
    require_arrays(impl);
    require_inputs(impl, inputs);
    std::optional<StateUse> use;
    if (state) use.emplace(state->impl());
    const PreparedInputs prepared = prepare_inputs(impl, inputs, false);
    const RawPrediction raw =
        run_prediction(impl, prepared.provider.get(), impl.plain_options.get(), state ? &state->impl() : nullptr);
    std::vector<RetainPtr<NSString*>> names;
    for (const TensorSpec& spec : impl.outputs) names.push_back(impl.output_plans.at(spec.name).name);
    std::vector<CheckFailure> failures;
    const auto arrays = collect_outputs(raw.features.get(), names, failures);
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      if (!arrays[i] && failures.empty()) failures.push_back({impl.outputs[i].name, "prediction", "an array", "none"});
    }
    if (!failures.empty()) {
      throw failures_error(ErrorCode::kIntegrity, "[predict] the outputs cannot be trusted", std::move(failures));
    }
    std::vector<OwnedOutput> outputs;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      outputs.push_back(copy_out(impl.outputs[i].name, arrays[i].get()));
    }
    return outputs;
  });
}

}  // namespace kvbacking
