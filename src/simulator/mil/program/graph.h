// One function of a program with every name resolved: single assignment, definition before use, known ops only.
// Threads: immutable after construction; safe everywhere.
// Ownership: points into the Package.
#pragma once

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

struct Node {
  const Operation* op = nullptr;
  OpFunction compile = nullptr;
  std::vector<std::pair<std::string_view, std::vector<ValueId>>> inputs;
  std::vector<ValueId> outputs;
};

struct Graph {
  Graph(const PackageImpl& package, const Function& function);
  std::string where(const Node& node) const;  // "PACKAGE: function 'main', op 'y' (linear)"

  const PackageImpl& package;
  const Function& function;
  std::vector<GraphValue> values;
  std::vector<Node> nodes;      // constants are values, not nodes
  std::vector<ValueId> inputs;  // in the function's order, states among them
  std::vector<ValueId> outputs;
};

}  // namespace coremlsim::mil
