// Reading single elements of any dtype from unaligned memory. Core-internal.
// Threads: pure functions. Ownership: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/half.h"
#include "kvbacking/layout.h"

namespace kvbacking {

template <typename T>
T load_bits(const std::byte* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

// One type per dtype: Stored (its bytes), Value (what arithmetic on it uses: float for float16) and read().
struct Float16Element {
  using Stored = std::uint16_t;
  using Value = float;
  static Value read(const std::byte* bytes) noexcept { return half_to_float(load_bits<Stored>(bytes)); }
};
struct Float32Element {
  using Stored = std::uint32_t;
  using Value = float;
  static Value read(const std::byte* bytes) noexcept { return load_bits<float>(bytes); }
};
struct Float64Element {
  using Stored = std::uint64_t;
  using Value = double;
  static Value read(const std::byte* bytes) noexcept { return load_bits<double>(bytes); }
};
struct Int32Element {
  using Stored = std::uint32_t;
  using Value = double;  // exact
  static Value read(const std::byte* bytes) noexcept { return load_bits<std::int32_t>(bytes); }
};
struct Int8Element {
  using Stored = std::uint8_t;
  using Value = double;
  static Value read(const std::byte* bytes) noexcept { return load_bits<std::int8_t>(bytes); }
};

// Calls visit(Element{}) with the type of `dtype`.
template <class Visit>
decltype(auto) visit_dtype(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::kFloat16:
      return visit(Float16Element{});
    case DType::kFloat32:
      return visit(Float32Element{});
    case DType::kFloat64:
      return visit(Float64Element{});
    case DType::kInt32:
      return visit(Int32Element{});
    case DType::kInt8:
      break;
  }
  return visit(Int8Element{});
}

}  // namespace kvbacking
