// One use of an operation while a plan is made: the facts of its arguments, and where it declares its outputs.
// Threads: used by the thread that plans.
// Ownership: borrows the planner's; a step captures slots and numbers by value, never a Call or an Info.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mil/program/frame.h"
#include "mil/program/tensor.h"

namespace coremlsim::mil {

class Planner;
struct Node;

// What a block of control flow gave: dense elements of its own.
struct BlockResult {
  Storage storage = Storage::kFloat;
  Shape shape;
  std::int64_t count = 0;
  std::shared_ptr<void> data;
};

// Thrown when an output's shape depends on a value that is only known when the program runs.
struct NeedsValue {};

class Call {
 public:
  Call(Planner& planner, const Node& node) : planner_(planner), node_(node) {}

  // Arguments. Throws ModelError when a required one is absent.
  bool has(std::string_view name) const;
  const Info& in(std::string_view name);
  const Info* maybe(std::string_view name);
  const Info& in_known(std::string_view name);  // as in(), with the data of a constant
  std::vector<const Info*> list(std::string_view name);
  const Info& weight(std::string_view name);    // storage may be kHalf: fp16 constants stay in the weight file
  const Info& state(std::string_view name);     // the memory of a state, in its declared type
  const Value* literal(std::string_view name);  // a constant argument or attribute as it lies in the file; null: absent
  std::size_t output_count() const;
  const TensorType& declared(std::size_t output = 0) const;

  // Values of arguments that shapes depend on. Throws NeedsValue when the value is not known yet.
  std::vector<std::int64_t> ints(std::string_view name);
  std::vector<std::int64_t> ints_or(std::string_view name, std::vector<std::int64_t> fallback);
  std::int64_t integer(std::string_view name, std::optional<std::int64_t> fallback = {});
  float number(std::string_view name, std::optional<float> fallback = {});
  bool flag(std::string_view name, bool fallback);
  std::string text(std::string_view name, std::string fallback = {});
  std::int64_t axis(std::string_view name, std::int64_t rank, std::optional<std::int64_t> fallback = {});
  std::vector<std::int64_t> axes(std::string_view name, std::int64_t rank);  // absent: all of them; sorted, distinct

  // Outputs.
  Slot out(Shape shape, std::size_t output = 0);
  // As out(), computed in the memory of `in` when nobody reads that afterwards and the size allows it.
  Slot out_over(const Info& in, Shape shape, std::size_t output = 0);
  void alias(const Info& in, Shape shape, std::size_t output = 0);  // the same elements under another shape
  Slot scratch(std::int64_t bytes);                                 // memory for this step only
  void run(Step step);
  void known(Step step);                                // as run(), for a result that follows from shapes alone
  void cost(double operations) { cost_ = operations; }  // default: the number of output elements
  double cost() const { return cost_; }
  bool follows_from_shapes() const { return shape_only_; }
  // The output is a constant: `compute` fills its `type` and `owned` bytes, once for the program's life.
  void constant(const std::function<Value()>& compute, std::size_t output = 0);

  // Control flow. Runs a block now, with `arguments` for its own inputs; throws NeedsValue unless the program runs node
  // by node. `give` makes the results the outputs of this operation.
  std::vector<BlockResult> run_block(std::size_t block, const std::vector<BlockResult>& arguments);
  void give(std::vector<BlockResult> results);
  void count_turn();  // of a loop; throws ModelError beyond a limit that the loops of a run share

  [[noreturn]] void fail(const std::string& what) const;  // ModelError naming the op and the package

 private:
  const Info& tensor(int id, std::string_view name);
  const std::vector<int>* ids(std::string_view name) const;
  int single(std::string_view name) const;  // -1: absent

  Planner& planner_;
  const Node& node_;
  double cost_ = 0.0;
  bool shape_only_ = false;
};

}  // namespace coremlsim::mil
