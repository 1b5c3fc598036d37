// The SIMD loop of a parity check over one tile pair of float16/float32. Core-internal.
// Threads: pure functions. Ownership: none; data may be unaligned.
#pragma once

#include <cstdint>

#include "core/scan_plan.h"
#include "kvbacking/layout.h"

namespace kvbacking {

// Thresholds in fp32, rounded so that crossing them is necessary for what they announce, never sufficient.
struct ParityThresholds {
  float max_rel_seen = 0;   // rounded down
  float tolerance_abs = 0;  // rounded down
  float tolerance_rel = 0;  // rounded down
};

// Sums over the tile. A NaN or an infinity on either side, or an overflow, makes `plain` false; then only the scalar
// code's answer counts.
struct ParitySums {
  double abs_error = 0, dot = 0, a_squared = 0, b_squared = 0;
};

struct ParityTile {
  ParitySums sums;
  float max_abs_error = 0;
  bool plain = false;
  bool may_exceed_rel = false;        // some |a-b|/|b| may be above max_rel_seen
  bool may_exceed_tolerance = false;  // some |a-b| may be above tolerance_abs + tolerance_rel * |b|
};

// dtypes: each float16 or float32.
ParityTile parity_tile(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, const ParityThresholds& thresholds);

// The same for two tiles known to be bitwise equal, from one of them: there is no error, only squares.
ParityTile equal_tile(DType dtype, const Tile& tile);

// Elements with |a-b| > limit (limit is exact in fp32). Both tiles hold finite values only.
std::int64_t count_above(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float limit);

}  // namespace kvbacking
