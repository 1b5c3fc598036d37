// Element types of MIL as the file format numbers them, and tensor types with validated shapes.
// Threads: values and pure functions; safe everywhere.
// Ownership: none.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

#include "mil/engine.h"

namespace coremlsim::mil {

using Shape = std::vector<std::int64_t>;

// The numbers are those of MILSpec.DataType.
enum class MilType : std::uint8_t {
  kNone = 0,
  kBool = 1,
  kString = 2,
  kFloat16 = 10,
  kFloat32 = 11,
  kFloat64 = 12,
  kBFloat16 = 13,
  kInt8 = 21,
  kInt16 = 22,
  kInt32 = 23,
  kInt64 = 24,
  kInt4 = 25,
  kUInt8 = 31,
  kUInt16 = 32,
  kUInt32 = 33,
  kUInt64 = 34,
  kUInt4 = 35,
  kUInt2 = 36,
  kUInt1 = 37,
  kUInt6 = 38,
  kUInt3 = 39,
};

int bit_width(MilType type) noexcept;  // 0 for strings and unknown types; a bool takes 8 bits
const char* type_name(MilType type) noexcept;
bool is_float(MilType type) noexcept;
bool is_signed_integer(MilType type) noexcept;
DataType public_type(MilType type) noexcept;

constexpr std::int64_t kMaxRank = 8;  // Core ML allows 5; look-up tables add up to 2
constexpr std::int64_t kMaxElements = std::int64_t{1} << 33;

// -1 marks a dimension that is known only when the inputs are.
struct TensorType {
  MilType dtype = MilType::kNone;
  Shape dims;
};

bool is_static(const Shape& dims) noexcept;
// Overflow-checked; throws ModelError for a negative dimension, an absurd rank or count. `what` names the tensor: a
// text, or a function that makes it when it is needed.
std::int64_t element_count(const Shape& dims, const std::string& what);
// The same, or -1 instead of the error.
std::int64_t element_count_or_negative(const Shape& dims) noexcept;
template <class What>
  requires std::invocable<const What&>
std::int64_t element_count(const Shape& dims, const What& what) {
  const std::int64_t count = element_count_or_negative(dims);
  return count >= 0 ? count : element_count(dims, std::string(what()));
}
std::int64_t packed_byte_count(MilType type, std::int64_t elements) noexcept;
std::string describe(const Shape& dims);

}  // namespace coremlsim::mil
