// NumPy broadcasting, resolved while planning into a few strided loops.
// Threads: pure values; safe everywhere.
// Ownership: none.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "mil/package/types.h"

namespace coremlsim::mil {

// Shape of the result; throws ModelError when two shapes do not fit.
Shape broadcast_shape(const Shape& a, const Shape& b);

std::vector<std::int64_t> dense_strides(const Shape& shape);

// Operands of equal logical shape `dims` (merged, never empty), each with its strides in elements, 0 where broadcast.
// The last dimension's strides are 0 or 1 for dense operands.
struct Broadcast {
  Broadcast(const Shape& result, const std::vector<Shape>& operands);

  std::int64_t rows = 1;                           // product of all merged dimensions but the last
  std::int64_t length = 1;                         // of the last one
  std::vector<std::int64_t> outer;                 // sizes of the others
  std::vector<std::vector<std::int64_t>> strides;  // [operand][outer dimension]
  std::vector<int> inner_step;                     // [operand]: 0 or 1

  // Element offsets of every operand at the start of `row`.
  template <std::size_t N>
  std::array<std::int64_t, N> offsets(std::int64_t row) const {
    std::array<std::int64_t, N> at{};
    for (std::size_t d = outer.size(); d-- > 0;) {
      const std::int64_t i = row % outer[d];
      row /= outer[d];
      for (std::size_t k = 0; k < N; ++k) at[k] += i * strides[k][d];
    }
    return at;
  }
};

}  // namespace coremlsim::mil
