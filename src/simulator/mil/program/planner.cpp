#include "mil/program/planner.h"

#include <algorithm>
#include <cstring>

#include "mil/kernels/kernels.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kMaxFoldedElements = 1 << 16;
constexpr std::int64_t kMaxFoldedBytes = 1 << 26;  // with the op's scratch memory

// `what` makes the tensor's name when it is needed.
template <class What>
Info make_info(Slot slot, const TensorType& type, Shape shape, const What& what) {
  Info info;
  info.slot = slot;
  info.dtype = type.dtype;
  info.storage = storage_of(type.dtype);
  info.count = element_count(shape, what);
  info.shape = std::move(shape);
  return info;
}

bool fits(const Shape& shape, const Shape& declared) {
  if (shape.size() != declared.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (declared[i] >= 0 && declared[i] != shape[i]) return false;
  }
  return true;
}

}  // namespace

Planner::Planner(const Graph& graph, ConstantPool& constants, ThreadPool& pool, Numerics numerics)
    : graph_(graph), constants_(constants), numerics_(numerics), frame_(pool, {}), values_(graph.values.size()) {
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i].literal = graph.values[i].literal;
}

Slot Planner::add_slot(Place place, void* fixed, int index) {
  plan_.slots.push_back({place, fixed, index});
  frame_.slots.push_back(fixed);
  return static_cast<Slot>(plan_.slots.size()) - 1;
}

Slot Planner::add_buffer(std::int64_t bytes, int first) {
  plan_.buffers.push_back({bytes, first, first, -1});
  values_of_buffer_.emplace_back();
  return add_slot(Place::kArena, nullptr, static_cast<int>(plan_.buffers.size()) - 1);
}

const Info& Planner::info(ValueId id) {
  Tracked& value = values_[static_cast<std::size_t>(id)];
  if (value.defined) return value.info;
  const GraphValue& source = graph_.values[static_cast<std::size_t>(id)];  // a constant met for the first time
  if (!value.literal || value.literal->type.kind != ValueKind::kTensor) {
    throw ModelError("constant '" + std::string(source.name) + "' is not a tensor");
  }
  const TensorType& type = value.literal->type.tensor;
  if (type.dtype == MilType::kNone) throw ModelError("constant '" + std::string(source.name) + "' has an unknown type");
  value.info = make_info(kNoSlot, type, type.dims, [&] { return "constant '" + std::string(source.name) + "'"; });
  value.info.literal = value.literal;
  if (value.info.storage == Storage::kFloat && !eager_ && !ConstantPool::as_is(*value.literal)) {
    // Few are looked at while planning; a run decodes what is left.
    value.info.slot = add_slot(Place::kConstant, nullptr, static_cast<int>(plan_.constants.size()));
    plan_.constants.push_back(value.literal);
  } else if (value.info.storage != Storage::kString) {
    value.info.data = constants_.decoded(*value.literal);
    value.info.slot = add_slot(Place::kFixed, const_cast<void*>(value.info.data), -1);
  }
  value.defined = true;
  return value.info;
}

const Info& Planner::known_info(ValueId id) {
  (void)info(id);
  Info& known = values_[static_cast<std::size_t>(id)].info;
  if (known.slot == kNoSlot || known.data) return known;
  SlotPlace& place = plan_.slots[static_cast<std::size_t>(known.slot)];
  if (place.place == Place::kConstant) {  // another value under the same slot may have asked before
    if (!place.fixed)
      place.fixed = const_cast<void*>(constants_.decoded(*plan_.constants[static_cast<std::size_t>(place.index)]));
    frame_.slots[static_cast<std::size_t>(known.slot)] = place.fixed;
    known.data = place.fixed;
  }
  return known;
}

const Info& Planner::half(ValueId id) {
  Tracked& value = values_[static_cast<std::size_t>(id)];
  if (value.half.slot != kNoSlot) return value.half;
  const GraphValue& source = graph_.values[static_cast<std::size_t>(id)];
  if (!value.literal || value.literal->type.tensor.dtype != MilType::kFloat16) return info(id);
  const TensorType& type = value.literal->type.tensor;
  value.half = make_info(kNoSlot, type, type.dims, [&] { return "constant '" + std::string(source.name) + "'"; });
  value.half.storage = Storage::kHalf;
  value.half.literal = value.literal;
  value.half.slot = add_slot(Place::kFixed, const_cast<void*>(constants_.half(*value.literal)), -1);
  return value.half;
}

Info Planner::describe_output(const Node& node, std::size_t output, Shape shape) const {
  const NamedType& declared = node.op->outputs[output];
  if (declared.type.kind != ValueKind::kTensor || declared.type.tensor.dtype == MilType::kNone) {
    throw ModelError("output '" + std::string(declared.name) + "' is not a tensor of a known type");
  }
  if (!fits(shape, declared.type.tensor.dims)) {
    throw ModelError("output '" + std::string(declared.name) + "' is declared " +
                     mil::describe(declared.type.tensor.dims) + " but its inputs give " + mil::describe(shape));
  }
  return make_info(kNoSlot, declared.type.tensor, std::move(shape),
                   [&] { return "'" + std::string(declared.name) + "'"; });
}

bool Planner::dead_after_current(Slot slot) const {
  const SlotPlace& place = plan_.slots[static_cast<std::size_t>(slot)];
  if (place.index < 0 || place.place != Place::kArena) return false;
  const auto& sharing = values_of_buffer_[static_cast<std::size_t>(place.index)];
  return std::all_of(sharing.begin(), sharing.end(),
                     [&](ValueId id) { return graph_.values[static_cast<std::size_t>(id)].last_use <= current_; });
}

Slot Planner::declare(const Node& node, std::size_t output, Shape shape, const Info* over) {
  const ValueId id = node.outputs[output];
  Tracked& value = values_[static_cast<std::size_t>(id)];
  value.info = describe_output(node, output, std::move(shape));
  value.defined = true;
  if (value.info.storage == Storage::kString) throw ModelError("computed strings are not supported");
  // A constant that was folded while planning must survive the run.
  const bool folded = over && over->data && !eager_;
  if (over && !folded && over->bytes() == value.info.bytes() && over->storage != Storage::kHalf && !over->literal &&
      dead_after_current(over->slot)) {
    // A slot of its own: the caller's memory may stand in for an input's buffer and must never be written.
    const int index = plan_.slots[static_cast<std::size_t>(over->slot)].index;
    void* known = plan_.slots[static_cast<std::size_t>(over->slot)].fixed;
    value.info.slot = add_slot(Place::kArena, known, index);
    values_of_buffer_[static_cast<std::size_t>(index)].push_back(id);
    return value.info.slot;
  }
  value.info.slot = add_buffer(value.info.bytes(), current_);
  values_of_buffer_.back().push_back(id);
  return value.info.slot;
}

void Planner::declare_alias(const Node& node, std::size_t output, const Info& in, Shape shape) {
  const ValueId id = node.outputs[output];
  Tracked& value = values_[static_cast<std::size_t>(id)];
  const Slot slot = in.slot;
  const void* data = in.data;
  const Storage storage = in.storage;
  value.info = describe_output(node, output, std::move(shape));
  if (value.info.storage != storage) throw ModelError("an alias cannot change the element type");
  value.info.slot = slot;
  value.info.data = data;
  value.defined = true;
  const SlotPlace& place = plan_.slots[static_cast<std::size_t>(slot)];
  if (place.index >= 0 && place.place == Place::kArena) {
    values_of_buffer_[static_cast<std::size_t>(place.index)].push_back(id);
  }
}

void Planner::declare_literal(const Node& node, std::size_t output, const Value& literal) {
  const Info info = describe_output(node, output, literal.type.tensor.dims);
  if (info.dtype != literal.type.tensor.dtype) throw ModelError("a computed constant of another type than declared");
  values_[static_cast<std::size_t>(node.outputs[output])].literal = &literal;
}

void Planner::define_inputs(const InputShapes& shapes, const std::vector<void*>* pointers) {
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) {
    const ValueId id = graph_.inputs[i];
    const GraphValue& source = graph_.values[static_cast<std::size_t>(id)];
    Tracked& value = values_[static_cast<std::size_t>(id)];
    const bool state = source.origin == Origin::kState;
    const TensorType& type = source.type.tensor;
    const Shape& shape = state ? type.dims : shapes[i];
    const auto what = [&] { return "input '" + std::string(source.name) + "'"; };
    if (!fits(shape, type.dims)) {
      throw ModelError("[mil] " + graph_.package.path() + ": " + what() + " has shape " + mil::describe(shape) +
                       ", the program declares " + mil::describe(type.dims));
    }
    value.info = make_info(kNoSlot, type, shape, what);
    value.defined = true;
    if (pointers) {
      value.info.slot = add_slot(state ? Place::kState : Place::kFixed, (*pointers)[i],
                                 state ? static_cast<int>(plan_.states.size()) : -1);
      value.info.data = state ? nullptr : (*pointers)[i];
    } else if (state) {
      value.info.slot = add_slot(Place::kState, nullptr, static_cast<int>(plan_.states.size()));
    } else {
      value.info.slot = add_buffer(value.info.bytes(), 0);
      values_of_buffer_.back().push_back(id);
    }
    (state ? plan_.states : plan_.inputs)
        .push_back({source.name, value.info.slot, value.info.storage, type.dtype, value.info.shape, value.info.count});
  }
}

// Runs a step whose inputs are all known; its outputs become known.
void Planner::fold(PlannedStep& step, const Node& node) {
  for (std::size_t slot = 0; slot < plan_.slots.size(); ++slot) {
    SlotPlace& place = plan_.slots[slot];
    if (place.place != Place::kArena || place.fixed) continue;
    const PlannedBuffer& buffer = plan_.buffers[static_cast<std::size_t>(place.index)];
    if (buffer.first != current_ || buffer.bytes < 0) continue;
    plan_.owned.push_back(allocate(buffer.bytes));
    place.fixed = plan_.owned.back().get();
    frame_.slots[slot] = place.fixed;
  }
  step.run(frame_);
  if (numerics_ == Numerics::kFloat16) {
    for (const auto& [slot, count] : step.rounded) kernels().round_to_f16(frame_.f32(slot), count);
  }
  for (const ValueId id : node.outputs) {
    Info& out = values_[static_cast<std::size_t>(id)].info;
    out.data = plan_.slots[static_cast<std::size_t>(out.slot)].fixed;
  }
}

bool Planner::is_known(const Tracked& value) const {
  if (value.literal) return true;
  if (!value.defined || value.info.slot == kNoSlot) return false;
  return value.info.data || plan_.slots[static_cast<std::size_t>(value.info.slot)].place == Place::kConstant;
}

void Planner::plan_node(int index) {
  current_ = index;
  const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
  step_ = nullptr;
  Call call(*this, node);
  const std::size_t first_buffer = plan_.buffers.size();
  node.compile(call);
  double cost = call.cost();
  PlannedStep step{index, std::move(step_), {}};
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < node.outputs.size(); ++i) {
    const Tracked& value = values_[static_cast<std::size_t>(node.outputs[i])];
    if (!value.defined && !value.literal) call.fail("the operation has more outputs than the engine knows");
    elements += value.info.count;
    if (step.run && value.info.dtype == MilType::kFloat16 && value.info.storage == Storage::kFloat) {
      step.rounded.emplace_back(value.info.slot, value.info.count);
    }
  }
  plan_.node_cost.push_back(cost > 0 ? cost : step.run ? static_cast<double>(elements) : 0.0);
  if (!step.run) return;

  bool known = !node.outputs.empty() && elements <= kMaxFoldedElements;
  for (std::size_t b = first_buffer; b < plan_.buffers.size(); ++b) {
    known = known && plan_.buffers[b].bytes <= kMaxFoldedBytes;
  }
  for (const auto& [name, ids] : node.inputs) {
    for (const ValueId id : ids) {
      known = known && (call.follows_from_shapes() || is_known(values_[static_cast<std::size_t>(id)]));
    }
  }
  if (!eager_ && !known) {
    plan_.steps.push_back(std::move(step));
    return;
  }
  try {
    for (const auto& [name, ids] : node.inputs) {
      for (const ValueId id : ids) {
        if (values_[static_cast<std::size_t>(id)].defined) (void)known_info(id);
      }
    }
    fold(step, node);
  } catch (const std::exception& error) {
    call.fail(error.what());
  }
  if (eager_) return;
  // What was folded needs no place in the arena.
  for (std::size_t b = first_buffer; b < plan_.buffers.size(); ++b) plan_.buffers[b].bytes = 0;
}

void Planner::free_dead(int index) {
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    if (plan_.buffers[b].bytes < 0) continue;
    current_ = index;
    const auto& sharing = values_of_buffer_[b];
    const bool dead = std::all_of(sharing.begin(), sharing.end(), [&](ValueId id) {
      return graph_.values[static_cast<std::size_t>(id)].last_use <= index;
    });
    if (!dead) continue;
    plan_.buffers[b].bytes = -1;
    for (const SlotPlace& place : plan_.slots) {
      if (place.place != Place::kArena || place.index != static_cast<int>(b) || !place.fixed) continue;
      std::erase_if(plan_.owned, [&](const AlignedBuffer& owned) { return owned.get() == place.fixed; });
      break;
    }
  }
}

Plan Planner::finish() {
  for (std::size_t b = 0; b < plan_.buffers.size(); ++b) {
    PlannedBuffer& buffer = plan_.buffers[b];
    for (const ValueId id : values_of_buffer_[b]) {
      buffer.last = std::max(buffer.last, graph_.values[static_cast<std::size_t>(id)].last_use);
    }
  }
  for (const ValueId id : graph_.outputs) {
    if (graph_.values[static_cast<std::size_t>(id)].origin == Origin::kState) {
      throw ModelError("[mil] " + graph_.package.path() + ": a state cannot be an output");
    }
    const Info& out = info(id);
    if (out.storage == Storage::kString)
      throw ModelError("[mil] " + graph_.package.path() + ": string outputs are not supported");
    plan_.outputs.push_back({graph_.values[static_cast<std::size_t>(id)].name, out.slot, out.storage, out.dtype,
                             out.shape, out.count, true});
    for (PlannedTensor& input : plan_.inputs) input.is_output = input.is_output || input.slot == out.slot;
  }
  if (!eager_) {
    // Folded constants live in `owned`; their slots are fixed.
    for (SlotPlace& place : plan_.slots) {
      if (place.place == Place::kArena && place.fixed) place.place = Place::kFixed;
    }
    place_buffers(plan_);
  }
  return std::move(plan_);
}

Plan Planner::plan(const InputShapes& shapes) {
  define_inputs(shapes, nullptr);
  for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) plan_node(i);
  return finish();
}

Plan Planner::run_eagerly(const InputShapes& shapes, const std::vector<void*>& inputs_and_states) {
  eager_ = true;
  define_inputs(shapes, &inputs_and_states);
  for (int i = 0; i < static_cast<int>(graph_.nodes.size()); ++i) {
    plan_node(i);
    free_dead(i);
  }
  return finish();
}

}  // namespace coremlsim::mil
