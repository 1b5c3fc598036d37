// The scalar side of a scan: exact counts and first indices, for tiles that the SIMD loops flagged and for dtypes
// that have none. Core-internal.
// Threads: pure functions on the caller's tally. Ownership: none; data may be unaligned.
#pragma once

#include <cstdint>
#include <limits>

#include "core/scan_plan.h"
#include "kvbacking/layout.h"

namespace kvbacking {

// What one thread has seen. Tiles must come in ascending logical order: the first index seen stays.
struct Tally {
  std::int64_t nan_count = 0, first_nan_index = -1;
  std::int64_t inf_count = 0, first_inf_index = -1;
  std::int64_t live_nan_count = 0, live_inf_count = 0;
  std::int64_t tail_dirty_count = 0, first_tail_dirty_index = -1;
  std::int64_t residue_count = 0, first_residue_index = -1;
  bool live_all_zero = true;
  double min = std::numeric_limits<double>::infinity();  // over the non-NaN values seen; `any_value` says if any
  double max = -std::numeric_limits<double>::infinity();
  bool any_value = false;

  void include_range(double low, double high) noexcept;
  void merge(const Tally& other) noexcept;  // order does not matter: lower indices win
};

void tally_live(DType dtype, const Tile& tile, std::int64_t logical_start, Tally& tally);
void tally_tail(DType dtype, const Tile& tile, std::int64_t logical_start, Tally& tally);
// Logical index of the first element whose bytes equal (or differ from) the low bytes of `pattern`; -1: none.
std::int64_t find_bits(std::size_t element_byte_count, const Tile& tile, std::int64_t logical_start,
                       std::uint64_t pattern, bool equal);

}  // namespace kvbacking
