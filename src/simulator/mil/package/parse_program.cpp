// Model and MIL program. Control-flow blocks nest to a limit and value types do not nest here, so that no input can
// recurse without bound.
#include <algorithm>
#include <array>
#include <bit>
#include <set>

#include "mil/package/parser.h"

namespace coremlsim::mil {
namespace {

static_assert(std::endian::native == std::endian::little, "weights and literals are little endian");

template <class Visit>
void parse_map_entry(Proto message, Visit visit) {
  std::string_view key, value;
  while (message.next()) {
    if (message.field() == 1) key = message.bytes();
    if (message.field() == 2) value = message.bytes();
  }
  visit(key, Proto(value));
}

TensorType parse_tensor_type(Proto message) {
  TensorType type;
  std::int64_t rank = -1;
  bool variadic = false;
  while (message.next()) {
    if (message.field() == 1) {
      const std::uint64_t code = message.varint();
      type.dtype = code < 256 && bit_width(static_cast<MilType>(code)) > 0 ? static_cast<MilType>(code)
                   : code == static_cast<std::uint64_t>(MilType::kString)  ? MilType::kString
                                                                           : MilType::kNone;
    } else if (message.field() == 2) {
      rank = message.integer();
    } else if (message.field() == 3) {
      std::int64_t size = -1;
      Proto dimension = message.message();
      while (dimension.next()) {
        if (dimension.field() == 1) {
          size = 0;
          Proto constant = dimension.message();
          while (constant.next()) {
            if (constant.field() == 1) size = constant.integer();
          }
          if (size < 0 || size > kMaxElements) throw ModelError("a dimension of " + std::to_string(size));
        } else if (dimension.field() == 2) {
          size = -1;
          Proto unknown = dimension.message();
          while (unknown.next()) {
            if (unknown.field() == 1) variadic = unknown.varint() != 0;
          }
        }
      }
      if (type.dims.empty()) type.dims.reserve(4);  // the usual rank; a scalar needs none
      type.dims.push_back(size);
      if (static_cast<std::int64_t>(type.dims.size()) > kMaxRank) {
        throw ModelError("a rank above the limit of " + std::to_string(kMaxRank));
      }
    }
  }
  if (variadic) throw ModelError("a tensor of unknown rank");
  if (rank > kMaxRank) throw ModelError("a rank of " + std::to_string(rank));
  if (rank >= 0 && rank != static_cast<std::int64_t>(type.dims.size())) {
    throw ModelError("rank " + std::to_string(rank) + " with " + std::to_string(type.dims.size()) + " dimensions");
  }
  return type;
}

ValueType parse_value_type(Proto message) {
  ValueType type;
  while (message.next()) {
    if (message.field() == 1) {
      type.kind = ValueKind::kTensor;
      type.tensor = parse_tensor_type(message.message());
    } else if (message.field() == 5) {
      type.kind = ValueKind::kState;
      Proto state = message.message();
      while (state.next()) {
        if (state.field() != 1) continue;
        Proto wrapped = state.message();
        while (wrapped.next()) {
          if (wrapped.field() == 1) type.tensor = parse_tensor_type(wrapped.message());
        }
      }
    }
  }
  return type;
}

void store_integers(Value& value, const std::vector<std::int64_t>& integers) {
  const int width = bit_width(value.type.tensor.dtype) / 8;
  if (width == 0) throw ModelError("integer literal of a type without whole bytes");
  value.owned.resize(integers.size() * static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < integers.size(); ++i) {
    std::memcpy(value.owned.data() + i * static_cast<std::size_t>(width), &integers[i],
                static_cast<std::size_t>(width));
  }
  value.raw = value.owned;
}

// Packed fixed-width elements: a view when they are in one piece, as writers do it; unpacked ones are gathered.
void parse_fixed(Proto message, Value& value, std::size_t width) {
  while (message.next()) {
    if (message.field() != 1) continue;
    if (message.is_length_delimited()) {
      const std::string_view packed = message.bytes();
      const auto* first = reinterpret_cast<const std::uint8_t*>(packed.data());
      if (value.raw.empty()) {
        value.raw = {first, packed.size()};
        continue;
      }
      if (value.owned.empty()) value.owned.assign(value.raw.begin(), value.raw.end());
      value.owned.insert(value.owned.end(), first, first + packed.size());
    } else {
      if (value.owned.empty()) value.owned.assign(value.raw.begin(), value.raw.end());
      std::uint8_t buffer[8];
      if (width == 4) {
        const float element = message.fixed_float();
        std::memcpy(buffer, &element, 4);
      } else {
        const double element = message.fixed_double();
        std::memcpy(buffer, &element, 8);
      }
      value.owned.insert(value.owned.end(), buffer, buffer + width);
    }
    value.raw = value.owned;
  }
}

void parse_tensor_value(Proto message, Value& value) {
  while (message.next()) {
    const std::uint32_t field = message.field();
    if (field == 1) {
      parse_fixed(message.message(), value, 4);
    } else if (field == 6) {
      parse_fixed(message.message(), value, 8);
    } else if (field == 2 || field == 3 || field == 5) {
      std::vector<std::int64_t> integers;
      Proto repeated = message.message();
      while (repeated.next()) {
        if (repeated.field() == 1) repeated.append_varints(integers);
      }
      store_integers(value, integers);
    } else if (field == 4) {
      Proto repeated = message.message();
      while (repeated.next()) {
        if (repeated.field() == 1) value.strings.push_back(repeated.bytes());
      }
    } else if (field == 7) {
      Proto repeated = message.message();
      while (repeated.next()) {
        if (repeated.field() != 1) continue;
        const std::string_view bytes = repeated.bytes();
        value.raw = {reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()};
      }
    }
  }
}

Value parse_value(Proto message) {
  Value value;
  std::string_view immediate, blob;
  while (message.next()) {
    if (message.field() == 2) value.type = parse_value_type(message.message());
    if (message.field() == 3) immediate = message.bytes();
    if (message.field() == 5) {
      blob = message.bytes();
      value.in_blob = true;
    }
  }
  if (value.type.kind != ValueKind::kTensor) return value;
  const std::int64_t count = element_count(value.type.tensor.dims, "a literal");
  if (value.in_blob) {
    Proto reference(blob);
    while (reference.next()) {
      if (reference.field() == 1) value.blob_file = reference.bytes();
      if (reference.field() == 2) value.blob_offset = reference.varint();
    }
    return value;
  }
  Proto kinds(immediate);
  while (kinds.next()) {
    if (kinds.field() == 1) parse_tensor_value(kinds.message(), value);
  }
  const bool text = value.type.tensor.dtype == MilType::kString;
  const std::int64_t have =
      text ? static_cast<std::int64_t>(value.strings.size()) : static_cast<std::int64_t>(value.raw.size());
  const std::int64_t need = text ? count : packed_byte_count(value.type.tensor.dtype, count);
  if (have != need) {
    throw ModelError("a literal of type " + std::string(type_name(value.type.tensor.dtype)) +
                     describe(value.type.tensor.dims) + " holds " + std::to_string(have) +
                     (text ? " strings" : " bytes") + ", expected " + std::to_string(need));
  }
  return value;
}

NamedType parse_named_type(Proto message) {
  NamedType named;
  while (message.next()) {
    if (message.field() == 1) named.name = message.bytes();
    if (message.field() == 2) named.type = parse_value_type(message.message());
  }
  if (named.name.empty()) throw ModelError("a value without a name");
  return named;
}

std::vector<Binding> parse_argument(Proto message, Operation& op) {
  std::vector<Binding> bindings;
  while (message.next()) {
    if (message.field() != 1) continue;
    Binding binding;
    Proto entry = message.message();
    while (entry.next()) {
      if (entry.field() == 1) binding.name = entry.bytes();
      if (entry.field() == 2) {
        binding.literal = static_cast<int>(op.literals.size());
        op.literals.push_back(parse_value(entry.message()));
      }
    }
    if (binding.name.empty() == (binding.literal < 0))
      throw ModelError("an argument that is neither a name nor a value");
    bindings.push_back(binding);
  }
  return bindings;
}

constexpr std::size_t kMaxReserved = 1 << 14;  // a count in a hostile file costs nothing until it is met

// How many fields of each number below 8 a message has: room is made once instead of growing.
std::array<std::size_t, 8> count_fields(Proto message) {
  std::array<std::size_t, 8> counts{};
  while (message.next()) {
    if (message.field() < counts.size()) ++counts[message.field()];
  }
  return counts;
}

constexpr int kMaxDepth = 8;  // of blocks in blocks

void parse_block(Proto message, Function& function, int depth);

void parse_operation(Proto message, Operation& op, int depth) {
  const auto counts = count_fields(message);
  op.inputs.reserve(counts[2]);
  op.outputs.reserve(counts[3]);
  op.attributes.reserve(counts[5]);
  while (message.next()) {
    switch (message.field()) {
      case 1:
        op.type = message.bytes();
        break;
      case 2:
        parse_map_entry(message.message(), [&](std::string_view key, Proto value) {
          op.inputs.emplace_back(key, parse_argument(value, op));
        });
        break;
      case 3:
        op.outputs.push_back(parse_named_type(message.message()));
        break;
      case 4:
        if (depth == kMaxDepth) throw ModelError("blocks nest deeper than " + std::to_string(kMaxDepth));
        parse_block(message.message(), op.blocks.emplace_back(), depth + 1);
        break;
      case 5:
        parse_map_entry(message.message(), [&](std::string_view key, Proto value) {
          op.attributes.emplace_back(key, parse_value(value));
        });
        break;
      default:
        break;
    }
  }
  if (op.type.empty()) throw ModelError("an operation without a type");
}

void parse_block(Proto message, Function& function, int depth) {
  const auto counts = count_fields(message);
  function.outputs.reserve(counts[2]);
  function.operations.reserve(std::min(counts[3], kMaxReserved));
  while (message.next()) {
    if (message.field() == 1 && depth > 0) function.inputs.push_back(parse_named_type(message.message()));
    if (message.field() == 2) function.outputs.push_back(message.bytes());
    if (message.field() != 3) continue;
    const Proto operation = message.message();
    try {
      parse_operation(operation, function.operations.emplace_back(), depth);
    } catch (const std::exception& error) {
      throw ModelError("operation " + std::to_string(function.operations.size() - 1) + ": " + error.what());
    }
  }
}

}  // namespace

Function parse_function(std::string_view name, Proto message) {
  Function function;
  function.name = name;
  std::vector<std::string_view> specializations;
  while (message.next()) {
    if (message.field() == 1) function.inputs.push_back(parse_named_type(message.message()));
    if (message.field() == 2) function.opset = message.bytes();
    if (message.field() == 3) specializations.push_back(message.bytes());
  }
  bool found = false;
  for (const std::string_view entry : specializations) {
    parse_map_entry(Proto(entry), [&](std::string_view key, Proto block) {
      if (key != function.opset || found) return;
      found = true;
      parse_block(block, function, 0);
    });
  }
  if (!found) throw ModelError("no block for opset '" + std::string(function.opset) + "'");
  return function;
}

Model parse_model(std::string_view bytes) {
  Model model;
  std::string_view description, program;
  bool has_program = false;
  Proto message(bytes);
  while (message.next()) {
    if (message.field() == 1) model.specification_version = static_cast<int>(message.integer());
    if (message.field() == 2) description = message.bytes();
    if (message.field() == 502) {
      program = message.bytes();
      has_program = true;
    }
  }
  if (!has_program) throw ModelError("not an ML program (neural networks and pipelines are not supported)");
  parse_description(Proto(description), model);
  Proto program_message(program);
  std::set<std::string_view> names;
  while (program_message.next()) {
    if (program_message.field() != 2) continue;
    parse_map_entry(program_message.message(), [&](std::string_view name, Proto function) {
      if (!names.insert(name).second) throw ModelError("function '" + std::string(name) + "' appears twice");
      try {
        model.functions.push_back(parse_function(name, function));
      } catch (const std::exception& error) {
        throw ModelError("function '" + std::string(name) + "': " + error.what());
      }
    });
  }
  for (const FunctionDescription& function : model.descriptions) {
    if (!names.contains(function.name)) {
      throw ModelError("function '" + function.name + "' is described but the program has none of that name");
    }
  }
  if (model.default_function.empty()) model.default_function = model.descriptions.front().name;
  return model;
}

}  // namespace coremlsim::mil
