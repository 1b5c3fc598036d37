// Turns a graph and input shapes into a plan. Eager: every value is known and each step runs as soon as it is planned;
// for programs in which a shape depends on a computed value.
// Threads: one planner per thread.
// Ownership: borrows graph, constants and pool; hands its folded constants to the plan.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "mil/ops/call.h"
#include "mil/program/constant_pool.h"
#include "mil/program/graph.h"
#include "mil/program/plan.h"

namespace coremlsim::mil {

using InputShapes = std::vector<Shape>;  // of Graph::inputs, in order; a state's is not used

class Planner {
 public:
  Planner(const Graph& graph, ConstantPool& constants, ThreadPool& pool, Numerics numerics);

  // Throws NeedsValue when a shape depends on a computed value, ModelError when the program is wrong.
  Plan plan(const InputShapes& shapes);
  // Runs the program at once. `inputs` hold decoded elements and `states` the caller's memory, in Graph::inputs order.
  Plan run_eagerly(const InputShapes& shapes, const std::vector<void*>& inputs_and_states);

 private:
  friend class Call;
  struct Tracked {  // a value that has been defined
    Info info;
    Info half;                       // the same constant as fp16 in the weight file
    const Value* literal = nullptr;  // of a constant; decoded when first asked for
    bool defined = false;
  };

  const Info& info(ValueId id);
  const Info& known_info(ValueId id);  // with its data, when it is a constant
  const Info& half(ValueId id);
  bool is_known(const Tracked& value) const;
  Slot add_slot(Place place, void* fixed, int index);
  Slot add_buffer(std::int64_t bytes, int first);
  bool dead_after_current(Slot slot) const;
  void define_inputs(const InputShapes& shapes, const std::vector<void*>* pointers);
  void plan_node(int index);
  void fold(PlannedStep& step, const Node& node);
  void free_dead(int index);
  Plan finish();

  Slot declare(const Node& node, std::size_t output, Shape shape, const Info* over);
  void declare_alias(const Node& node, std::size_t output, const Info& in, Shape shape);
  void declare_literal(const Node& node, std::size_t output, const Value& literal);
  Info describe_output(const Node& node, std::size_t output, Shape shape) const;

  const Graph& graph_;
  ConstantPool& constants_;
  Numerics numerics_;
  Plan plan_;
  Frame frame_;  // pointers of the values that are known
  std::vector<Tracked> values_;
  std::vector<std::vector<ValueId>> values_of_buffer_;
  bool eager_ = false;
  std::shared_ptr<std::int64_t> turns_ = std::make_shared<std::int64_t>(0);  // of all loops, shared with inner blocks
  int current_ = 0;
  Step step_;
};

}  // namespace coremlsim::mil
