#include "framework/predict.h"

#include <atomic>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "framework/control.h"
#include "framework/description.h"
#include "framework/errors.h"
#include "framework/misbehave.h"
#include "framework/multi_array.h"
#include "framework/pixel_buffer.h"
#include "framework/state.h"

namespace coremlsim {
namespace {

// Counts itself in for as long as it lives; `overlapped` when somebody else was in already.
class InFlight {
 public:
  explicit InFlight(std::atomic<int>& count) : count_(count), overlapped_(count.fetch_add(1) > 0) {}
  ~InFlight() { --count_; }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  bool overlapped() const noexcept { return overlapped_; }

 private:
  std::atomic<int>& count_;
  bool overlapped_;
};

bool collect_inputs(const mil::FunctionDescription& function, id<MLFeatureProvider> provider,
                    std::vector<InputSlot>& inputs, NSError** error) {
  for (const mil::FeatureDescription& feature : function.inputs) {
    MLFeatureValue* value = [provider featureValueForName:to_ns(feature.name)];
    if (value == nil || [value isUndefined]) {
      if (feature.optional) {
        continue;
      }
      return fail(error, MLModelErrorFeatureType, "Feature " + feature.name + " is required but not specified.");
    }
    const std::string problem = why_not_allowed(feature, value, false);
    if (!problem.empty()) {
      return fail(error, MLModelErrorFeatureType,
                  "Input feature " + feature.name + " is incompatible with the model description.", problem);
    }
    MLMultiArray* array = [value multiArrayValue];
    if (array == nil) {
      return fail(error, MLModelErrorFeatureType,
                  "Input feature " + feature.name + " is not a MultiArray; the simulator executes only those.");
    }
    inputs.push_back({feature.name, array});
  }
  return true;
}

// Empty when the array may be written into now.
std::string why_not_writable(const std::string& name, MLMultiArray* array, const Faults& faults) {
  const MLMultiArrayStorage& storage = *array->_storage;
  if (storage.memory.buffer == nullptr) {
    return {};
  }
  const PixelBuffer& buffer = pixel_buffer(storage.memory.buffer);
  bool locked = buffer.is_locked();
  if (locked) {
    count_violation(Violation::kLockedBacking);
  } else if (const auto scope = faults.wants(Fault::kStickyAfterCpuLock, name)) {
    locked = *scope == "buffer" ? buffer.locked_since_first_array()
                                : buffer.lock_generation() != storage.generation_at_creation;
    if (locked) {
      faults.fired(Fault::kStickyAfterCpuLock);
    }
  }
  return locked ? "The pixel buffer under the output backing's MultiArray for feature " + name +
                      " is locked. Use a newly created pixel buffer and MultiArray."
                : "";
}

bool overlap(MLMultiArray* first, MLMultiArray* second) {
  const ArrayMemory& a = first->_storage->memory;
  const ArrayMemory& b = second->_storage->memory;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.bytes);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.bytes);
  return a_begin < b_begin + b.byte_count && b_begin < a_begin + a.byte_count;
}

bool check_aliases(const std::vector<InputSlot>& inputs, const std::vector<OutputSlot>& outputs, NSError** error) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    MLMultiArray* backing = outputs[i].backing.get();
    if (backing == nil) {
      continue;
    }
    std::string other;
    for (std::size_t j = 0; j < i; ++j) {
      if (MLMultiArray* earlier = outputs[j].backing.get(); earlier != nil && overlap(backing, earlier)) {
        other = "output backing " + outputs[j].feature->name;
      }
    }
    for (const InputSlot& input : inputs) {
      if (overlap(backing, input.array.get())) {
        other = "input " + input.name;
      }
    }
    if (!other.empty()) {
      count_violation(Violation::kAliasedBackings);
      return fail(error, MLModelErrorGeneric,
                  "The output backing for feature " + outputs[i].feature->name + " overlaps " + other + ".");
    }
  }
  return true;
}

bool collect_backings(const mil::FunctionDescription& function, MLPredictionOptions* options, const Faults& faults,
                      std::vector<OutputSlot>& outputs, NSError** error) {
  NSDictionary<NSString*, id>* proposed = [options outputBackings];
  for (const mil::FeatureDescription& feature : function.outputs) {
    OutputSlot slot;
    slot.feature = &feature;
    NSString* name = to_ns(feature.name);
    id object = [proposed objectForKey:name];  // names that the model does not know are never looked up
    if (object != nil) {
      if (![object isKindOfClass:[MLMultiArray class]]) {
        return fail(error, MLModelErrorFeatureType,
                    "The output backing for feature " + feature.name + " is not a MultiArray.");
      }
      MLFeatureValue* value = [MLFeatureValue featureValueWithMultiArray:object];
      std::string problem = why_not_allowed(feature, value, true);
      if (problem.empty() && faults.fire(Fault::kDisallow, feature.name)) {
        problem = "isAllowedValue: answers NO (simulated fault disallow)";
      }
      if (!problem.empty()) {
        return fail(error, MLModelErrorFeatureType,
                    "The output backing for feature " + feature.name + " is incompatible with the model description.",
                    problem);
      }
      if (const std::string locked = why_not_writable(feature.name, object, faults); !locked.empty()) {
        return fail(error, MLModelErrorGeneric, locked);
      }
      slot.backing = static_cast<MLMultiArray*>(object);
    }
    outputs.push_back(std::move(slot));
  }
  return true;
}

MLMultiArray* make_framework_output(const OutputSlot& output, const std::vector<std::int64_t>& shape) {
  const auto type = array_type(output.feature->dtype);
  if (!type) {
    return nil;
  }
  if (options().framework_surfaces) {
    if (MLMultiArray* array = make_surface_array(shape, *type)) {
      return array;
    }
  }
  return make_array(shape, *type, padded_strides(shape, element_byte_width(*type)));
}

bool deliver(OutputSlot& output, const mil::TensorView& tensor, ModelRuntime& runtime, const Faults& faults,
             NSError** error) {
  const std::string& name = output.feature->name;
  MLMultiArray* backing = output.backing.get();
  if (backing != nil && backing->_storage->shape != tensor.shape) {
    return fail(error, MLModelErrorGeneric,
                "The output backing for feature " + name + " has shape " + describe(backing->_storage->shape) +
                    ", the output has shape " + describe(tensor.shape) + ".");
  }
  choose_destination(output, tensor.shape, faults);
  if (!output.result && backing != nil) {
    output.result = output.backing;
    output.accepted = true;
  } else if (!output.result) {
    output.result = make_framework_output(output, tensor.shape);
  }
  if (!output.result) {
    return fail(error, MLModelErrorGeneric, "Cannot allocate the output for feature " + name + ".");
  }
  write_output(output, tensor, runtime, faults);
  corrupt_output(output, faults);
  if (CVPixelBufferRef buffer = output.result.get()->_storage->memory.buffer;
      buffer != nullptr && pixel_buffer(buffer).surface != nullptr) {
    pixel_buffer(buffer).surface->device_wrote();
  }
  return true;
}

mil::Numerics choose_numerics(const ModelRuntime& runtime, const std::vector<OutputSlot>& outputs) {
  if (const auto backed = options().backed_numerics) {
    for (const OutputSlot& output : outputs) {
      if (output.backing) {
        return *backed;
      }
    }
  }
  return runtime.numerics();
}

bool execute(MLModelStorage& model, const std::vector<InputSlot>& inputs, std::vector<OutputSlot>& outputs,
             MLStateStorage& state, const Faults& faults, NSError** error) {
  try {
    ModelRuntime::RunLease lease(*model.runtime, choose_numerics(*model.runtime, outputs));
    std::map<std::string, mil::TensorView> arguments;
    for (const InputSlot& input : inputs) {
      arguments[input.name] = view_of(input.array.get());
    }
    std::map<std::string, mil::TensorView> states;
    for (const auto& [name, buffer] : state.buffers) {
      states[name] = buffer.view;
    }
    const auto tensors = lease.run().execute(arguments, states);
    for (OutputSlot& output : outputs) {
      const auto found = tensors.find(output.feature->name);
      if (found == tensors.end()) {
        return fail(error, MLModelErrorGeneric, "The program gave no value for output " + output.feature->name + ".");
      }
      if (!deliver(output, found->second, *model.runtime, faults, error)) {
        return false;
      }
    }
    return true;
  } catch (const std::exception& exception) {
    return fail(error, MLModelErrorGeneric, "The prediction failed: " + std::string(exception.what()));
  }
}

}  // namespace

id<MLFeatureProvider> predict(MLModel* model, id<MLFeatureProvider> input, MLPredictionOptions* options, MLState* state,
                              NSError** error) {
  MLModelStorage& storage = *model->_storage;
  const Faults faults = Faults::for_prediction();
  const InFlight on_model(storage.runtime->in_flight);
  if (on_model.overlapped()) {
    count_violation(Violation::kOverlap);
    if (faults.fire(Fault::kOverlap)) {
      fail(error, MLModelErrorGeneric, "Another prediction is running on this model.");
      return nil;
    }
  }
  std::optional<MLStateStorage> fresh;
  if (state == nil) {
    fresh.emplace(storage.function->states);
  }
  MLStateStorage& states = state != nil ? *state->_storage : *fresh;
  const InFlight on_state(states.in_flight);
  if (on_state.overlapped()) {
    count_violation(Violation::kStateOverlap);
    fail(error, MLModelErrorGeneric, "Another prediction is using this state.");
    return nil;
  }
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  if (!collect_inputs(*storage.function, input, inputs, error) ||
      !collect_backings(*storage.function, options, faults, outputs, error) || !check_aliases(inputs, outputs, error) ||
      !misbehave_before(faults, error) || !execute(storage, inputs, outputs, states, faults, error)) {
    return nil;
  }
  id<MLFeatureProvider> result = finish_outputs(inputs, outputs, faults);
  std::vector<Strong<id>> held;
  for (const InputSlot& slot : inputs) {
    held.push_back(slot.array.get());
  }
  storage.runtime->hold(std::move(held));
  return result;
}

void predict_async(MLModel* model, id<MLFeatureProvider> input, MLPredictionOptions* options, MLState* state,
                   void (^handler)(id<MLFeatureProvider>, NSError*)) {
  const Strong<MLModel*> target = model;
  const Strong<id> features = static_cast<id>(input);
  const Strong<MLPredictionOptions*> chosen = options;
  const Strong<MLState*> with = state;
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([target, features, chosen, with, done] {
    NSError* error = nil;
    id<MLFeatureProvider> result = predict(target.get(), features.get(), chosen.get(), with.get(), &error);
    complete<id<MLFeatureProvider>>(done, result, error);
  });
}

}  // namespace coremlsim
