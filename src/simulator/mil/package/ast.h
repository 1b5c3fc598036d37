// The parsed protobuf: what model.mlmodel says, validated, nothing decoded that is not needed.
// Threads: immutable after parsing; safe everywhere.
// Ownership: string_views and byte spans point into the mapped files that the Package owns; `owned` bytes belong to
// their Value.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mil/engine.h"
#include "mil/package/types.h"

namespace coremlsim::mil {

enum class ValueKind : std::uint8_t { kTensor, kState, kOther };  // kOther: lists, tuples, dictionaries

struct ValueType {
  ValueKind kind = ValueKind::kOther;
  TensorType tensor;  // of the state, for a state
};

// A literal. `raw` holds the elements little endian, sub-byte types packed with the first element in the low bits.
struct Value {
  Value() = default;
  Value(Value&&) = default;  // `raw` may point into `owned`, whose buffer moves along
  Value& operator=(Value&&) = default;

  ValueType type;
  std::span<const std::uint8_t> raw;
  std::vector<std::uint8_t> owned;        // backs `raw` when the file stores varints
  std::vector<std::string_view> strings;  // for kString
  bool in_blob = false;                   // until the package has resolved it, `raw` is empty
  std::string_view blob_file;
  std::uint64_t blob_offset = 0;
};

struct Binding {
  std::string_view name;  // empty: the literal `literal` of the operation
  int literal = -1;
};

struct NamedType {
  std::string_view name;
  ValueType type;
};

struct Function;

struct Operation {
  std::string_view type;
  std::vector<std::pair<std::string_view, std::vector<Binding>>> inputs;
  std::vector<NamedType> outputs;
  std::vector<std::pair<std::string_view, Value>> attributes;
  std::vector<Value> literals;
  std::vector<Function> blocks;  // of control flow; without a name and an opset
};

struct Function {
  std::string_view name, opset;
  std::vector<NamedType> inputs;
  std::vector<std::string_view> outputs;
  std::vector<Operation> operations;
};

struct Model {
  int specification_version = 0;
  std::vector<FunctionDescription> descriptions;
  std::string default_function;
  bool multi_function = false;
  std::vector<Function> functions;
};

}  // namespace coremlsim::mil
