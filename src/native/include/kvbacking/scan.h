// One pass over the bytes of an output: finite, zero, range, tail, digest, and optionally parity and residue.
// Threads: pure functions; `threads` > 1 splits rows over that many threads inside the call.
// Ownership: none; reads caller memory only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "kvbacking/layout.h"

namespace kvbacking {

struct ScanOptions {
  std::optional<std::int64_t> live = {};  // elements of `axis` that are payload; the rest is the tail. Empty: all of it
  std::int64_t axis = 0;                  // may be negative
  int threads = 1;
  // Residue: count of elements whose bytes still hold this fill pattern (element_size bytes of it), e.g. a sentinel.
  std::optional<std::uint64_t> fill_pattern = {};
  // Parity against a second array of equal shape (dtype equal, or fp16/fp32), over the live range only when live is
  // given. Differences of float16 and float32 are taken in fp32, those of the other dtypes in fp64. Infinity against
  // the same infinity differs by 0, against anything else by infinity (always over); pairs with a NaN count in no
  // error.
  const void* reference = nullptr;
  const Layout* reference_layout = nullptr;
  double max_abs = 0.0;  // tolerance: an element is over when |a-b| > max_abs + max_rel * |b|
  double max_rel = 0.0;
};

struct ParityResult {
  double max_abs_error = 0.0;
  std::int64_t max_abs_index = -1;  // logical (C order) index; -1 when empty
  double max_rel_error = 0.0;
  std::int64_t max_rel_index = -1;  // |a-b| / |b|, elements with b == 0 and a == b count 0
  std::int64_t over_tolerance_count = 0;
  std::int64_t first_over_index = -1;  // NaN on one side only counts as over
  double mean_abs_error = 0.0;
  double cosine = 1.0;
};

struct ScanResult {
  std::int64_t element_count = 0;
  std::int64_t nan_count = 0, first_nan_index = -1;  // live range and tail alike; logical C-order indices
  std::int64_t inf_count = 0, first_inf_index = -1;
  std::int64_t live_nan_count = 0, live_inf_count = 0;  // in the live range only
  bool live_all_zero = true;                            // +0 and -0 alike, over the live range
  double min = 0.0, max = 0.0;                          // of the non-NaN live elements; NaN when there is none
  std::int64_t tail_dirty_count = 0,
               first_tail_dirty_index = -1;  // elements whose bytes are not all zero (-0.0 is dirty)
  std::array<std::uint8_t, 16> digest{};     // XXH3-128 (canonical form) of all logical bytes in C order
  std::int64_t residue_count = 0, first_residue_index = -1;
  std::optional<ParityResult> parity;
  bool finite() const { return nan_count == 0 && inf_count == 0; }
  bool live_finite() const { return live_nan_count == 0 && live_inf_count == 0; }
  std::string digest_hex() const;
};

// Nothing may write `data` meanwhile. Throws Error(kInvalidArgument) on a live length or axis outside the shape, a null
// address, fewer than one thread, a negative tolerance, or a reference of another shape or of a dtype without parity.
ScanResult scan(const void* data, const Layout& layout, const ScanOptions& options = {});

}  // namespace kvbacking
