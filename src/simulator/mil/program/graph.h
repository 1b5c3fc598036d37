// One function of a program with every name resolved: single assignment, definition before use, known ops only.
// Threads: immutable after construction; safe everywhere.
// Ownership: points into the Package.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mil/ops/registry.h"
#include "mil/package/ast.h"
#include "mil/package/package.h"

namespace coremlsim::mil {

using ValueId = int;

enum class Origin : std::uint8_t { kInput, kState, kConstant, kOperation };

struct GraphValue {
  std::string_view name;
  Origin origin;
  const ValueType& type;           // in the package
  const Value* literal = nullptr;  // of a constant
  int last_use = -1;               // node index; the node count for an output; -1: never used
};

struct Graph;

struct Node {
  const Operation* op = nullptr;
  OpFunction compile = nullptr;
  std::vector<std::pair<std::string_view, std::vector<ValueId>>> inputs;
  std::vector<ValueId> outputs;
  std::vector<std::shared_ptr<const Graph>> blocks;  // of control flow
};

// Whether a graph has a node for it: a constant is a value, and `classify` gives labels, which the engine leaves out.
bool is_node(const Operation& op) noexcept;

struct Graph {
  Graph(const PackageImpl& package, const Function& function);
  struct Scope;  // a graph while it is made
  // A block of `outer`'s next node; `place` is for messages.
  Graph(const PackageImpl& package, const Function& block, Scope& outer, std::string place);
  std::string where(const Node& node) const;  // "PACKAGE: function 'main', op 'y' (linear)"

  const PackageImpl& package;
  const Function& function;
  std::vector<GraphValue> values;
  std::vector<Node> nodes;        // constants are values, not nodes
  std::vector<ValueId> inputs;    // in the function's order, states among them; a block's own, then what it captures
  std::vector<ValueId> captures;  // the values of the outer graph for the last inputs, in order
  std::vector<ValueId> outputs;

 private:
  void build(Scope& scope);
  std::string place_;
};

}  // namespace coremlsim::mil
