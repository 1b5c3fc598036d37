#include "mil/program/graph.h"

#include <algorithm>
#include <unordered_map>

namespace coremlsim::mil {
namespace {

const Value* constant_value(const Operation& op) {
  for (const auto& [name, value] : op.attributes) {
    if (name == "val") return &value;
  }
  return nullptr;
}

}  // namespace

std::string Graph::where(const Node& node) const {
  const std::string name = node.op->outputs.empty() ? "?" : std::string(node.op->outputs.front().name);
  return "[mil] " + package.path() + ": function '" + std::string(function.name) + "', op '" + name + "' (" +
         std::string(node.op->type) + ")";
}

Graph::Graph(const PackageImpl& owner, const Function& source) : package(owner), function(source) {
  const std::string prefix = "[mil] " + package.path() + ": function '" + std::string(function.name) + "': ";
  std::unordered_map<std::string_view, ValueId> names;
  const auto define = [&](std::string_view name, GraphValue value) {
    const auto id = static_cast<ValueId>(values.size());
    if (!names.emplace(name, id).second) throw ModelError(prefix + "'" + std::string(name) + "' is defined twice");
    value.name = name;
    values.push_back(value);
    return id;
  };
  for (const NamedType& input : function.inputs) {
    if (input.type.kind == ValueKind::kOther) {
      throw ModelError(prefix + "input '" + std::string(input.name) + "' is not a tensor");
    }
    const Origin origin = input.type.kind == ValueKind::kState ? Origin::kState : Origin::kInput;
    inputs.push_back(define(input.name, {{}, origin, input.type}));
  }
  names.reserve(function.operations.size() + function.inputs.size());
  values.reserve(2 * function.operations.size());  // the usual share of literals
  nodes.reserve(function.operations.size());
  for (const Operation& op : function.operations) {
    const auto label = [&] {
      return prefix + "op '" + (op.outputs.empty() ? "?" : std::string(op.outputs.front().name)) + "' (" +
             std::string(op.type) + ")";
    };
    if (op.type == "const") {
      const Value* value = constant_value(op);
      if (!value || op.outputs.size() != 1) throw ModelError(label() + ": a constant without a value");
      define(op.outputs.front().name, {{}, Origin::kConstant, value->type, value});
      continue;
    }
    Node node;
    node.op = &op;
    node.compile = find_op(op.type);
    if (!node.compile || op.block_count > 0) {
      throw ModelError(label() + ": the simulator does not support the operation '" + std::string(op.type) + "'");
    }
    const int index = static_cast<int>(nodes.size());
    node.inputs.reserve(op.inputs.size());
    node.outputs.reserve(op.outputs.size());
    for (const auto& [name, bindings] : op.inputs) {
      auto& [argument, ids] = node.inputs.emplace_back(name, std::vector<ValueId>{});
      ids.reserve(bindings.size());
      for (const Binding& binding : bindings) {
        if (binding.literal >= 0) {
          const Value& literal = op.literals[static_cast<std::size_t>(binding.literal)];
          ids.push_back(static_cast<ValueId>(values.size()));
          values.push_back({{}, Origin::kConstant, literal.type, &literal});
          continue;
        }
        const auto it = names.find(binding.name);
        if (it == names.end()) {
          throw ModelError(label() + ": '" + std::string(binding.name) +
                           "' is used before it is defined (a cycle, or it does not exist)");
        }
        values[static_cast<std::size_t>(it->second)].last_use = index;
        ids.push_back(it->second);
      }
    }
    for (const NamedType& output : op.outputs) {
      node.outputs.push_back(define(output.name, {{}, Origin::kOperation, output.type}));
    }
    nodes.push_back(std::move(node));
  }
  for (const std::string_view name : function.outputs) {
    const auto it = names.find(name);
    if (it == names.end()) throw ModelError(prefix + "output '" + std::string(name) + "' is never computed");
    values[static_cast<std::size_t>(it->second)].last_use = static_cast<int>(nodes.size());
    outputs.push_back(it->second);
  }
}

}  // namespace coremlsim::mil
