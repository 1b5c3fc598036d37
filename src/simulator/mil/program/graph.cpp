#include "mil/program/graph.h"

#include <algorithm>
#include <set>
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

bool is_node(const Operation& op) noexcept { return op.type != "const" && op.type != "classify"; }

struct Graph::Scope {
  Graph& graph;
  Scope* outer = nullptr;
  std::unordered_map<std::string_view, ValueId> names;

  // -1: nobody has it. A value of an outer graph becomes one of this graph: a constant, or one more input.
  ValueId find(std::string_view name) {
    if (const auto it = names.find(name); it != names.end()) return it->second;
    const ValueId source = outer ? outer->find(name) : -1;
    if (source < 0) return -1;
    GraphValue& value = outer->graph.values[static_cast<std::size_t>(source)];
    value.last_use = static_cast<int>(outer->graph.nodes.size());
    if (value.type.kind != ValueKind::kTensor) {
      throw ModelError("'" + std::string(name) + "' is no tensor; blocks of control flow see tensors only");
    }
    const auto id = static_cast<ValueId>(graph.values.size());
    graph.values.push_back({value.name, value.literal ? Origin::kConstant : Origin::kInput, value.type, value.literal});
    names.emplace(name, id);
    if (!value.literal) {
      graph.inputs.push_back(id);
      graph.captures.push_back(source);
    }
    return id;
  }
};

std::string Graph::where(const Node& node) const {
  const std::string name = node.op->outputs.empty() ? "?" : std::string(node.op->outputs.front().name);
  return "[mil] " + package.path() + ": " + place_ + ", op '" + name + "' (" + std::string(node.op->type) + ")";
}

Graph::Graph(const PackageImpl& owner, const Function& source)
    : package(owner), function(source), place_("function '" + std::string(source.name) + "'") {
  Scope scope{*this, nullptr, {}};
  build(scope);
}

Graph::Graph(const PackageImpl& owner, const Function& block, Scope& outer, std::string place)
    : package(owner), function(block), place_(std::move(place)) {
  Scope scope{*this, &outer, {}};
  build(scope);
}

void Graph::build(Scope& scope) {
  const std::string prefix = "[mil] " + package.path() + ": " + place_ + ": ";
  auto& names = scope.names;
  std::set<std::string_view> labels;  // outputs of `classify`
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
    if (op.type == "classify") {
      for (const auto& [name, bindings] : op.inputs) {
        for (const Binding& binding : bindings) {
          if (!binding.name.empty() && scope.find(binding.name) < 0) {
            throw ModelError(label() + ": '" + std::string(binding.name) + "' is used before it is defined");
          }
        }
      }
      for (const NamedType& output : op.outputs) labels.insert(output.name);
      continue;
    }
    Node node;
    node.op = &op;
    node.compile = find_op(op.type);
    const std::size_t block_count = op.type == "cond" || op.type == "while_loop" ? 2 : 0;
    if (!node.compile) {
      throw ModelError(label() + ": the simulator does not support the operation '" + std::string(op.type) + "'");
    }
    if (op.blocks.size() != block_count) {
      throw ModelError(label() + ": " + std::to_string(op.blocks.size()) + " blocks, expected " +
                       std::to_string(block_count));
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
        const ValueId id = scope.find(binding.name);
        if (id < 0) {
          throw ModelError(label() + ": '" + std::string(binding.name) +
                           "' is used before it is defined (a cycle, or it does not exist)");
        }
        values[static_cast<std::size_t>(id)].last_use = index;
        ids.push_back(id);
      }
    }
    for (const Function& block : op.blocks) {
      const std::string place = label().substr(prefix.size());
      node.blocks.push_back(std::make_shared<const Graph>(
          package, block, scope, place_ + ", " + place + ", block " + std::to_string(node.blocks.size())));
    }
    for (const NamedType& output : op.outputs) {
      node.outputs.push_back(define(output.name, {{}, Origin::kOperation, output.type}));
    }
    nodes.push_back(std::move(node));
  }
  for (const std::string_view name : function.outputs) {
    if (labels.contains(name)) continue;
    const ValueId id = scope.find(name);
    if (id < 0) throw ModelError(prefix + "output '" + std::string(name) + "' is never computed");
    values[static_cast<std::size_t>(id)].last_use = static_cast<int>(nodes.size());
    outputs.push_back(id);
  }
}

}  // namespace coremlsim::mil
