#include "mil/ops/call.h"

#include <algorithm>
#include <cstring>

#include "mil/program/planner.h"

namespace coremlsim::mil {

void Call::fail(const std::string& what) const { throw ModelError(planner_.graph_.where(node_) + ": " + what); }

const std::vector<int>* Call::ids(std::string_view name) const {
  for (const auto& [argument, bound] : node_.inputs) {
    if (argument == name) return &bound;
  }
  return nullptr;
}

int Call::single(std::string_view name) const {
  const std::vector<int>* bound = ids(name);
  if (!bound) return -1;
  if (bound->size() != 1)
    fail("argument '" + std::string(name) + "' binds " + std::to_string(bound->size()) + " values");
  return bound->front();
}

bool Call::has(std::string_view name) const { return ids(name) != nullptr; }

const Info* Call::maybe(std::string_view name) {
  const int id = single(name);
  return id < 0 ? nullptr : &tensor(id, name);
}

const Info& Call::tensor(int id, std::string_view name) {
  const Info& info = planner_.info(id);
  if (info.slot == kNoSlot) fail("argument '" + std::string(name) + "' is a string");
  if (planner_.plan_.slots[static_cast<std::size_t>(info.slot)].place == Place::kState) {
    fail("argument '" + std::string(name) + "' is a state");
  }
  return info;
}

const Info& Call::state(std::string_view name) {
  const int id = single(name);
  if (id < 0) fail("no argument '" + std::string(name) + "'");
  const Info& info = planner_.info(id);
  if (info.slot == kNoSlot || planner_.plan_.slots[static_cast<std::size_t>(info.slot)].place != Place::kState) {
    fail("argument '" + std::string(name) + "' is not a state");
  }
  return info;
}

const Info& Call::in(std::string_view name) {
  const Info* info = maybe(name);
  if (!info) fail("no argument '" + std::string(name) + "'");
  return *info;
}

const Info& Call::in_known(std::string_view name) {
  (void)in(name);
  return planner_.known_info(single(name));
}

std::vector<const Info*> Call::list(std::string_view name) {
  const std::vector<int>* bound = ids(name);
  if (!bound) fail("no argument '" + std::string(name) + "'");
  std::vector<const Info*> infos;
  for (const int id : *bound) infos.push_back(&tensor(id, name));
  return infos;
}

const Info& Call::weight(std::string_view name) {
  const int id = single(name);
  if (id < 0) fail("no argument '" + std::string(name) + "'");
  const Info& info = planner_.half(id);
  return info.storage == Storage::kHalf ? info : tensor(id, name);
}

const Value* Call::literal(std::string_view name) {
  if (const int id = single(name); id >= 0) {
    const Value* value = planner_.values_[static_cast<std::size_t>(id)].literal;
    if (!value) fail("argument '" + std::string(name) + "' must be a constant");
    return value;
  }
  for (const auto& [attribute, value] : node_.op->attributes) {
    if (attribute == name) return value.type.kind == ValueKind::kTensor ? &value : nullptr;
  }
  return nullptr;
}

std::size_t Call::output_count() const { return node_.outputs.size(); }

const TensorType& Call::declared(std::size_t output) const {
  if (output >= node_.outputs.size()) fail("output " + std::to_string(output) + " is missing");
  return node_.op->outputs[output].type.tensor;
}

std::vector<std::int64_t> Call::ints(std::string_view name) {
  const Info& info = in_known(name);
  if (!info.data) throw NeedsValue{};
  std::vector<std::int64_t> values(static_cast<std::size_t>(info.count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (info.storage == Storage::kInt) values[i] = static_cast<const std::int32_t*>(info.data)[i];
    if (info.storage == Storage::kBool) values[i] = static_cast<const std::uint8_t*>(info.data)[i];
    if (info.storage == Storage::kFloat) fail("argument '" + std::string(name) + "' must be of an integer type");
  }
  return values;
}

std::vector<std::int64_t> Call::ints_or(std::string_view name, std::vector<std::int64_t> fallback) {
  return has(name) ? ints(name) : std::move(fallback);
}

std::int64_t Call::integer(std::string_view name, std::optional<std::int64_t> fallback) {
  if (!has(name) && fallback) return *fallback;
  const std::vector<std::int64_t> values = ints(name);
  if (values.size() != 1) fail("argument '" + std::string(name) + "' must be one number");
  return values.front();
}

float Call::number(std::string_view name, std::optional<float> fallback) {
  if (!has(name) && fallback) return *fallback;
  const Info& info = in_known(name);
  if (!info.data) throw NeedsValue{};
  if (info.count != 1) fail("argument '" + std::string(name) + "' must be one number");
  if (info.storage == Storage::kFloat) return *static_cast<const float*>(info.data);
  return static_cast<float>(integer(name));
}

bool Call::flag(std::string_view name, bool fallback) { return integer(name, fallback ? 1 : 0) != 0; }

std::string Call::text(std::string_view name, std::string fallback) {
  if (single(name) < 0) return fallback;
  const Value* value = literal(name);
  if (value->strings.size() != 1) fail("argument '" + std::string(name) + "' must be one string");
  return std::string(value->strings.front());
}

std::int64_t Call::axis(std::string_view name, std::int64_t rank, std::optional<std::int64_t> fallback) {
  const std::int64_t given = integer(name, fallback);
  const std::int64_t axis = given < 0 ? given + rank : given;
  if (axis < 0 || axis >= rank) {
    fail("argument '" + std::string(name) + "' is " + std::to_string(given) + " for rank " + std::to_string(rank));
  }
  return axis;
}

std::vector<std::int64_t> Call::axes(std::string_view name, std::int64_t rank) {
  std::vector<std::int64_t> axes;
  if (!has(name)) {
    for (std::int64_t i = 0; i < rank; ++i) axes.push_back(i);
    return axes;
  }
  for (const std::int64_t given : ints(name)) {
    const std::int64_t axis = given < 0 ? given + rank : given;
    if (axis < 0 || axis >= rank) {
      fail("argument '" + std::string(name) + "' has " + std::to_string(given) + " for rank " + std::to_string(rank));
    }
    axes.push_back(axis);
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    fail("argument '" + std::string(name) + "' names an axis twice");
  }
  return axes;
}

Slot Call::out(Shape shape, std::size_t output) {
  (void)declared(output);
  return planner_.declare(node_, output, std::move(shape), nullptr);
}

Slot Call::out_over(const Info& in, Shape shape, std::size_t output) {
  (void)declared(output);
  return planner_.declare(node_, output, std::move(shape), &in);
}

void Call::alias(const Info& in, Shape shape, std::size_t output) {
  (void)declared(output);
  planner_.declare_alias(node_, output, in, std::move(shape));
}

Slot Call::scratch(std::int64_t bytes) { return planner_.add_buffer(bytes, planner_.current_); }

void Call::run(Step step) { planner_.step_ = std::move(step); }

void Call::known(Step step) {
  shape_only_ = true;
  run(std::move(step));
}

void Call::constant(const std::function<Value()>& compute, std::size_t output) {
  (void)declared(output);
  planner_.declare_literal(node_, output, planner_.constants_.computed(*node_.op, output, compute));
}

std::vector<BlockResult> Call::run_block(std::size_t block, const std::vector<BlockResult>& arguments) {
  if (!planner_.eager_) throw NeedsValue{};
  const Graph& graph = *node_.blocks[block];
  if (arguments.size() + graph.captures.size() != graph.inputs.size()) {
    fail("a block with " + std::to_string(graph.inputs.size() - graph.captures.size()) + " inputs for " +
         std::to_string(arguments.size()) + " values");
  }
  InputShapes shapes;
  std::vector<void*> pointers;
  const auto add = [&](Storage storage, const Shape& shape, const void* data) {
    const GraphValue& input = graph.values[static_cast<std::size_t>(graph.inputs[shapes.size()])];
    if (input.origin != Origin::kInput || storage_of(input.type.tensor.dtype) != storage) {
      fail("block input '" + std::string(input.name) + "' is of another type than its value");
    }
    shapes.push_back(shape);
    pointers.push_back(const_cast<void*>(data));
  };
  for (const BlockResult& argument : arguments) add(argument.storage, argument.shape, argument.data.get());
  for (const int id : graph.captures) {
    const Info& info = planner_.info(id);
    if (!info.data) fail("a block reads a value that has no elements");
    add(info.storage, info.shape, info.data);
  }
  Planner inner(graph, planner_.constants_, planner_.frame_.pool, planner_.numerics_);
  inner.turns_ = planner_.turns_;
  const Plan plan = inner.run_eagerly(shapes, pointers);
  std::vector<BlockResult> results;
  for (const PlannedTensor& output : plan.outputs) {
    const std::int64_t bytes = output.count * storage_bytes(output.storage);
    results.push_back({output.storage, output.shape, output.count, std::shared_ptr<void>(allocate(bytes))});
    std::memcpy(results.back().data.get(), plan.slots[static_cast<std::size_t>(output.slot)].fixed,
                static_cast<std::size_t>(bytes));
  }
  return results;
}

void Call::count_turn() {
  constexpr std::int64_t kMaxTurns = 20000;  // a loop that never ends must not hang its caller for good
  if (++*planner_.turns_ > kMaxTurns) fail("more than " + std::to_string(kMaxTurns) + " turns of loops in one run");
}

void Call::give(std::vector<BlockResult> results) {
  if (results.size() != output_count()) {
    fail("a block gave " + std::to_string(results.size()) + " values for " + std::to_string(output_count()) +
         " outputs");
  }
  std::vector<Slot> slots;
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (storage_of(declared(i).dtype) != results[i].storage) {
      fail("a block gave output " + std::to_string(i) + " in another type than declared");
    }
    slots.push_back(out(results[i].shape, i));
  }
  run([slots, results = std::move(results)](Frame& f) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const BlockResult& result = results[i];
      std::memcpy(f.get<void>(slots[i]), result.data.get(),
                  static_cast<std::size_t>(result.count * storage_bytes(result.storage)));
    }
  });
}

}  // namespace coremlsim::mil
