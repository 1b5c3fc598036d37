// Binds the caller's tensors, runs the steps of a plan in order, hands out the results.
#include <algorithm>
#include <cstring>
#include <utility>

#include "mil/kernels/kernels.h"
#include "mil/program/program.h"

namespace coremlsim::mil {
namespace {

DataType stored_type(Storage storage) {
  if (storage == Storage::kFloat) return DataType::kFloat32;
  return storage == Storage::kInt ? DataType::kInt32 : DataType::kBool;
}

std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

TensorView dense_view(Storage storage, const Shape& shape, void* data) {
  return {stored_type(storage), shape, dense_strides(shape), data};
}

bool is_dense(const TensorView& view) {
  std::int64_t stride = 1;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    if (view.shape[i] != 1 && view.strides[i] != stride) return false;
    stride *= view.shape[i];
  }
  return true;
}

void fill(Storage storage, void* data, std::int64_t count, double value) {
  if (storage == Storage::kFloat) std::fill_n(static_cast<float*>(data), count, static_cast<float>(value));
  if (storage == Storage::kInt) std::fill_n(static_cast<std::int32_t*>(data), count, static_cast<std::int32_t>(value));
  if (storage == Storage::kBool) std::fill_n(static_cast<std::uint8_t*>(data), count, value != 0.0 ? 1 : 0);
}

}  // namespace

RunImpl::RunImpl(std::shared_ptr<const ProgramImpl> program) : program_(std::move(program)) {}

std::vector<RunImpl::Bound> RunImpl::bind(const std::map<std::string, TensorView>& inputs,
                                          const std::map<std::string, TensorView>& states) const {
  const Graph& graph = program_->graph();
  const std::string prefix = "[mil] " + graph.package.path() + ": ";
  std::vector<Bound> bound(graph.inputs.size());
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    const GraphValue& value = graph.values[static_cast<std::size_t>(graph.inputs[i])];
    const std::string name(value.name);
    const bool state = value.origin == Origin::kState;
    const auto& given = state ? states : inputs;
    const auto it = given.find(name);
    if (it != given.end()) {
      bound[i].view = &it->second;
      bound[i].shape = it->second.shape;
      if (it->second.strides.size() != it->second.shape.size())
        throw ModelError(prefix + "'" + name + "' has no strides");
      if (state && (it->second.shape != value.type.tensor.dims || !is_dense(it->second))) {
        throw ModelError(prefix + "state '" + name + "' must be dense " + describe(value.type.tensor.dims));
      }
      continue;
    }
    const auto& features = program_->description().inputs;
    const auto feature = std::find_if(features.begin(), features.end(), [&](const auto& f) { return f.name == name; });
    if (state || feature == features.end() || !feature->optional) {
      throw ModelError(prefix + (state ? "state '" : "input '") + name + "' is missing");
    }
    bound[i].fill = feature->default_value;
    bound[i].shape = program_->default_shape(i);
  }
  return bound;
}

void RunImpl::prepare(std::shared_ptr<const Plan> plan) {
  if (plan_ == plan) return;
  frame_.reset();
  const auto before = std::exchange(plan_, nullptr);  // until everything is there
  std::vector<void*> slots(plan->slots.size(), nullptr);
  try {
    if (!before || before->arena_bytes < plan->arena_bytes) {
      arena_.reset();
      arena_ = allocate(plan->arena_bytes);
    }
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = address_of(*plan, plan->slots[i]);
  } catch (const std::bad_alloc&) {
    throw ModelError("[mil] " + program_->graph().package.path() + ": no memory for the " +
                     std::to_string(plan->arena_bytes) + " bytes of its tensors and for its constants");
  }
  frame_ = std::make_unique<Frame>(program_->pool(), std::move(slots));
  plan_ = std::move(plan);
}

void* RunImpl::address_of(const Plan& plan, const SlotPlace& place) const {
  const auto index = static_cast<std::size_t>(place.index);
  switch (place.place) {
    case Place::kFixed:
      return place.fixed;
    case Place::kConstant:
      return place.fixed ? place.fixed : const_cast<void*>(program_->constants().decoded(*plan.constants[index]));
    case Place::kArena:
      if (plan.buffers[index].offset < 0) return nullptr;
      return static_cast<std::uint8_t*>(arena_.get()) + plan.buffers[index].offset;
    case Place::kState:
      break;
  }
  return nullptr;  // the caller's memory
}

void RunImpl::execute_plan(const std::vector<Bound>& bound) {
  const Graph& graph = program_->graph();
  const auto place_of = [&](const PlannedTensor& tensor) -> std::uint8_t* {
    const SlotPlace& place = plan_->slots[static_cast<std::size_t>(tensor.slot)];
    const std::int64_t offset = plan_->buffers[static_cast<std::size_t>(place.index)].offset;
    return offset < 0 ? nullptr : static_cast<std::uint8_t*>(arena_.get()) + offset;
  };
  std::size_t next_input = 0, next_state = 0;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const bool state = graph.values[static_cast<std::size_t>(graph.inputs[i])].origin == Origin::kState;
    const PlannedTensor& tensor = state ? plan_->states[next_state++] : plan_->inputs[next_input++];
    void*& pointer = frame_->slots[static_cast<std::size_t>(tensor.slot)];
    const TensorView* view = bound[i].view;
    if (state) {
      if (view->dtype != public_type(tensor.dtype))
        throw ModelError("[mil] state '" + std::string(tensor.name) + "' has another type than declared");
      pointer = view->data;
      continue;
    }
    if (view && view->dtype == stored_type(tensor.storage) && is_dense(*view) && !tensor.is_output) {
      pointer = view->data;  // used where it lies; steps never write an input
      continue;
    }
    pointer = place_of(tensor);
    if (tensor.count == 0) continue;
    if (view) {
      convert(*view, dense_view(tensor.storage, tensor.shape, pointer));
    } else {
      fill(tensor.storage, pointer, tensor.count, bound[i].fill);
    }
  }
  for (const PlannedStep& step : plan_->steps) {
    try {
      step.run(*frame_);
    } catch (const std::exception& error) {
      throw ModelError(graph.where(graph.nodes[static_cast<std::size_t>(step.node)]) + ": " + error.what());
    }
    if (program_->numerics() == Numerics::kFloat16) {
      for (const auto& [slot, count] : step.rounded) kernels().round_to_f16(frame_->f32(slot), count);
    }
  }
}

void RunImpl::execute_eagerly(const std::vector<Bound>& bound, const InputShapes& shapes) {
  const Graph& graph = program_->graph();
  eager_plan_ = {};
  staged_.clear();
  std::vector<void*> pointers;
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const GraphValue& value = graph.values[static_cast<std::size_t>(graph.inputs[i])];
    if (value.origin == Origin::kState) {
      pointers.push_back(bound[i].view->data);
      continue;
    }
    const Storage storage = storage_of(value.type.tensor.dtype);
    const std::int64_t count = element_count(shapes[i], std::string(value.name));
    staged_.push_back(allocate(count * storage_bytes(storage)));
    pointers.push_back(staged_.back().get());
    if (bound[i].view) {
      convert(*bound[i].view, dense_view(storage, shapes[i], pointers.back()));
    } else {
      fill(storage, pointers.back(), count, bound[i].fill);
    }
  }
  Planner planner(graph, program_->constants(), program_->pool(), program_->numerics());
  eager_plan_ = planner.run_eagerly(shapes, pointers);
}

std::map<std::string, TensorView> RunImpl::results(const Plan& plan, const Frame& frame) const {
  std::map<std::string, TensorView> views;
  for (const PlannedTensor& output : plan.outputs) {
    views.emplace(std::string(output.name), dense_view(output.storage, output.shape, frame.get<void>(output.slot)));
  }
  return views;
}

std::map<std::string, TensorView> RunImpl::execute(const std::map<std::string, TensorView>& inputs,
                                                   const std::map<std::string, TensorView>& states) {
  const std::vector<Bound> bound = bind(inputs, states);
  InputShapes shapes;
  for (const Bound& input : bound) shapes.push_back(input.shape);
  if (auto plan = program_->plan_for(shapes)) {
    prepare(std::move(plan));
    execute_plan(bound);
    return results(*plan_, *frame_);
  }
  execute_eagerly(bound, shapes);
  std::vector<void*> slots;
  for (const SlotPlace& place : eager_plan_.slots) slots.push_back(place.fixed);
  return results(eager_plan_, Frame(program_->pool(), std::move(slots)));
}

}  // namespace coremlsim::mil
