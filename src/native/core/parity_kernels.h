// The SIMD loop of a parity check over one tile pair of float16/float32. Core-internal.
// Threads: pure functions. Ownership: none; data may be unaligned.
#pragma once

#include <cstdint>

#include "core/scan_plan.h"
#include "kvbacking/layout.h"

namespace kvbacking {

// Sums over the tile. A NaN or an infinity on either side, or an overflow, makes `plain` false; then only the scalar
// code's answer counts.
struct ParitySums {
  double abs_error = 0, dot = 0, a_squared = 0, b_squared = 0;
};

struct ParityTile {
  ParitySums sums;
  float max_abs_error = 0;
  bool plain = false;
  bool may_exceed_rel = false;  // some |a-b|/|b| may be above max_rel_seen
};

// dtypes: each float16 or float32. `max_rel_seen` is rounded down to fp32: may_exceed_rel may cry wolf, never miss.
ParityTile parity_tile(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float max_rel_seen);

// The same for two tiles known to be bitwise equal, from one of them: there is no error, only squares.
ParityTile equal_tile(DType dtype, const Tile& tile);

// False only when no |a-b| is above max_abs + max_rel * |b| (both rounded down to fp32). Finite tiles only.
bool may_exceed(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float max_abs, float max_rel);

// Elements with |a-b| > limit (limit is exact in fp32). Both tiles hold finite values only.
std::int64_t count_above(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float limit);

}  // namespace kvbacking
