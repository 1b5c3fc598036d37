#include "mil/package/types.h"

#include <algorithm>

namespace coremlsim::mil {

std::size_t byte_width(DataType type) noexcept {
  switch (type) {
    case DataType::kBool:
    case DataType::kInt8:
    case DataType::kUInt8:
      return 1;
    case DataType::kFloat16:
    case DataType::kInt16:
    case DataType::kUInt16:
      return 2;
    case DataType::kFloat32:
    case DataType::kInt32:
    case DataType::kUInt32:
      return 4;
    case DataType::kFloat64:
    case DataType::kInt64:
    case DataType::kUInt64:
      return 8;
    case DataType::kString:
    case DataType::kOther:
      return 0;
  }
  return 0;
}

int bit_width(MilType type) noexcept {
  switch (type) {
    case MilType::kBool:
    case MilType::kInt8:
    case MilType::kUInt8:
      return 8;
    case MilType::kFloat16:
    case MilType::kBFloat16:
    case MilType::kInt16:
    case MilType::kUInt16:
      return 16;
    case MilType::kFloat32:
    case MilType::kInt32:
    case MilType::kUInt32:
      return 32;
    case MilType::kFloat64:
    case MilType::kInt64:
    case MilType::kUInt64:
      return 64;
    case MilType::kInt4:
    case MilType::kUInt4:
      return 4;
    case MilType::kUInt2:
      return 2;
    case MilType::kUInt1:
      return 1;
    case MilType::kUInt6:
      return 6;
    case MilType::kUInt3:
      return 3;
    case MilType::kString:
    case MilType::kNone:
      return 0;
  }
  return 0;
}

const char* type_name(MilType type) noexcept {
  switch (type) {
    case MilType::kBool:
      return "bool";
    case MilType::kString:
      return "string";
    case MilType::kFloat16:
      return "fp16";
    case MilType::kFloat32:
      return "fp32";
    case MilType::kFloat64:
      return "fp64";
    case MilType::kBFloat16:
      return "bf16";
    case MilType::kInt8:
      return "int8";
    case MilType::kInt16:
      return "int16";
    case MilType::kInt32:
      return "int32";
    case MilType::kInt64:
      return "int64";
    case MilType::kInt4:
      return "int4";
    case MilType::kUInt8:
      return "uint8";
    case MilType::kUInt16:
      return "uint16";
    case MilType::kUInt32:
      return "uint32";
    case MilType::kUInt64:
      return "uint64";
    case MilType::kUInt4:
      return "uint4";
    case MilType::kUInt2:
      return "uint2";
    case MilType::kUInt1:
      return "uint1";
    case MilType::kUInt6:
      return "uint6";
    case MilType::kUInt3:
      return "uint3";
    case MilType::kNone:
      return "unknown";
  }
  return "unknown";
}

bool is_float(MilType type) noexcept {
  return type == MilType::kFloat16 || type == MilType::kFloat32 || type == MilType::kFloat64 ||
         type == MilType::kBFloat16;
}

bool is_signed_integer(MilType type) noexcept {
  return type == MilType::kInt4 || type == MilType::kInt8 || type == MilType::kInt16 || type == MilType::kInt32 ||
         type == MilType::kInt64;
}

DataType public_type(MilType type) noexcept {
  switch (type) {
    case MilType::kBool:
      return DataType::kBool;
    case MilType::kString:
      return DataType::kString;
    case MilType::kFloat16:
      return DataType::kFloat16;
    case MilType::kFloat32:
      return DataType::kFloat32;
    case MilType::kFloat64:
      return DataType::kFloat64;
    case MilType::kInt8:
      return DataType::kInt8;
    case MilType::kInt16:
      return DataType::kInt16;
    case MilType::kInt32:
      return DataType::kInt32;
    case MilType::kInt64:
      return DataType::kInt64;
    case MilType::kUInt8:
      return DataType::kUInt8;
    case MilType::kUInt16:
      return DataType::kUInt16;
    case MilType::kUInt32:
      return DataType::kUInt32;
    case MilType::kUInt64:
      return DataType::kUInt64;
    default:
      return DataType::kOther;
  }
}

bool is_static(const Shape& dims) noexcept {
  return std::all_of(dims.begin(), dims.end(), [](std::int64_t d) { return d >= 0; });
}

std::int64_t element_count_or_negative(const Shape& dims) noexcept {
  if (static_cast<std::int64_t>(dims.size()) > kMaxRank) return -1;
  // Zeros count as one while checking, so that no product of some of the dimensions can overflow either.
  std::int64_t count = 1;
  bool empty = false;
  for (const std::int64_t d : dims) {
    empty = empty || d == 0;
    if (d < 0 || __builtin_mul_overflow(count, std::max<std::int64_t>(d, 1), &count) || count > kMaxElements) return -1;
  }
  return empty ? 0 : count;
}

std::int64_t element_count(const Shape& dims, const std::string& what) {
  if (const std::int64_t count = element_count_or_negative(dims); count >= 0) return count;
  if (static_cast<std::int64_t>(dims.size()) > kMaxRank) {
    throw ModelError(what + ": rank " + std::to_string(dims.size()) + " is above the limit of " +
                     std::to_string(kMaxRank));
  }
  if (!is_static(dims)) throw ModelError(what + ": negative dimension in " + describe(dims));
  throw ModelError(what + ": shape " + describe(dims) + " has more than " + std::to_string(kMaxElements) + " elements");
}

std::int64_t packed_byte_count(MilType type, std::int64_t elements) noexcept {
  return (elements * bit_width(type) + 7) / 8;
}

std::string describe(const Shape& dims) {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i) text += ", ";
    text += dims[i] < 0 ? "?" : std::to_string(dims[i]);
  }
  return text + "]";
}

}  // namespace coremlsim::mil
