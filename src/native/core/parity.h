// Parity of two arrays, tile by tile: what one thread has seen, and the result of all. Core-internal.
// Threads: one ParityTally per thread, tiles in ascending logical order. Ownership: values only.
#pragma once

#include <cstdint>
#include <span>

#include "core/parity_kernels.h"
#include "core/scan_plan.h"
#include "kvbacking/scan.h"

namespace kvbacking {

// Sums are kept per chunk of units and added up in chunk order, so that they do not depend on the thread count.
struct ParityChunk {
  ParitySums sums;
  std::int64_t pair_count = 0;  // without a NaN on either side
};

class ParityTally {
 public:
  // dtypes are equal, or float16 and float32. Differences of these two are taken in fp32, of the others in fp64.
  ParityTally(DType a_dtype, DType b_dtype, double max_abs, double max_rel);

  void add(const Tile& a, const Tile& b, std::int64_t logical_start, ParityChunk& chunk);
  void merge(const ParityTally& other) noexcept;
  ParityResult result(std::span<const ParityChunk> chunks) const;

 private:
  // What the scalar code is asked to find in a tile.
  struct Wanted {
    bool worst = false, rel = false, over = false, first_over = false, sums = false;
    bool any() const noexcept { return worst || rel || over || first_over || sums; }
  };
  template <class A, class B>
  void exact(const Tile& a, const Tile& b, std::int64_t logical_start, Wanted wanted, ParityChunk& chunk);
  void exact_any(const Tile& a, const Tile& b, std::int64_t logical_start, Wanted wanted, ParityChunk& chunk);

  DType a_dtype_, b_dtype_;
  double max_abs_, max_rel_;  // the tolerance
  bool has_kernel_;
  // Below this sum of squares fp32 products may have underflowed.
  double smallest_sum_;
  float max_abs_down_, max_rel_down_;  // the tolerance, rounded down to fp32
  double worst_abs_ = -1;
  std::int64_t worst_abs_index_ = -1;
  double worst_rel_ = -1;
  std::int64_t worst_rel_index_ = -1;
  std::int64_t over_count_ = 0;
  std::int64_t first_over_index_ = -1;
};

}  // namespace kvbacking
