// The SIMD loops of a scan over one tile. They only decide "nothing to see here" and keep ranges; whatever is not
// plain (a NaN, an infinity, a dirty tail) is counted by the scalar code in scan_exact. Core-internal.
// Threads: one RangeState per thread. Ownership: none; data may be unaligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/scan_plan.h"
#include "kvbacking/layout.h"

namespace kvbacking {

// Running extremes in lanes, reduced once at the end. Floats are ordered by their bits: among non-negative values the
// larger bit pattern is the larger value, among negative ones it is the smaller value; so the unsigned maximum, the
// unsigned minimum and the signed maximum of the bits give both extremes without converting anything.
struct RangeState {
  static constexpr std::size_t kBytes = 64;  // widest vector of any target
  alignas(64) std::byte unsigned_max[kBytes];
  alignas(64) std::byte unsigned_min[kBytes];
  alignas(64) std::byte signed_max[kBytes];
  alignas(64) std::byte signed_min[kBytes];  // integers only
};

struct TileFlags {
  bool non_finite = false;     // holds a NaN or an infinity: the state was left alone
  bool non_zero_bits = false;  // some element's bytes are not all zero
};

struct Extremes {
  double min, max;
  bool all_zero;  // +0 and -0 alike
};

// float16, float32, int8 and int32; the other dtypes have no fast path.
bool has_range_kernel(DType dtype) noexcept;
void reset_range(DType dtype, RangeState& state) noexcept;
// `state` may be null (only the flags are wanted).
TileFlags accumulate_range(DType dtype, const Tile& tile, RangeState* state);
// At least one tile must have been accumulated.
Extremes reduce_range(DType dtype, const RangeState& state) noexcept;

// Elements whose bytes equal the low bytes of `pattern`.
std::int64_t count_equal(std::size_t element_byte_count, const Tile& tile, std::uint64_t pattern);

}  // namespace kvbacking
