// Cuts one array (or two of equal shape) into cache-sized units in logical order. Core-internal.
// Threads: a plan is immutable; each thread brings its own UnitBuffer. Ownership: none; units point into caller memory
// or into the UnitBuffer they were loaded with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking {

// Rows of dense elements, `row_stride` bytes apart.
struct Tile {
  const std::byte* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t row_length = 0;  // elements
  std::int64_t row_stride = 0;  // bytes
};

// The same rows of both arrays; `b` is unused without a second array.
struct Unit {
  Tile a;
  Tile b;
  std::int64_t logical_start = 0;
};

// Room for one gathered unit of each array.
struct UnitBuffer {
  std::vector<std::byte> a, b;
};

class ScanPlan {
 public:
  // `other` may be null. Layouts are validated and of equal shape; counts are not zero.
  ScanPlan(const void* data, const Layout& layout, const void* other, const Layout* other_layout);

  std::int64_t unit_count() const noexcept { return unit_count_; }
  // Gathered units are copied into `buffer`; the others are in place.
  Unit load(std::int64_t unit, UnitBuffer& buffer) const;

 private:
  struct Axis {
    std::int64_t size;
    std::int64_t a_stride, b_stride;  // bytes
  };
  struct Offsets {
    std::int64_t a = 0, b = 0;
  };
  void coalesce(const Layout& layout, const Layout* other_layout);
  Offsets offsets_of(std::int64_t outer_index, std::size_t axis_count) const noexcept;
  Unit load_long_run(std::int64_t unit) const noexcept;
  Unit load_rows(std::int64_t unit) const noexcept;
  Unit load_gathered(std::int64_t unit, UnitBuffer& buffer) const;
  void gather(std::int64_t first, std::int64_t count, bool second, std::byte* destination) const;

  enum class Mode { kLongRun, kRows, kGather };
  Mode mode_ = Mode::kGather;
  const std::byte* a_ = nullptr;
  const std::byte* b_ = nullptr;
  std::int64_t a_size_ = 0, b_size_ = 0;  // bytes per element; b 0 without a second array
  std::int64_t element_count_ = 0;
  std::vector<Axis> axes_;             // outer to inner, coalesced where both arrays allow
  std::int64_t unit_elements_ = 0;     // kLongRun and kGather: elements of a whole unit
  std::int64_t rows_per_unit_ = 0;     // kRows
  std::int64_t units_per_parent_ = 1;  // units per run (kLongRun) or per row group (kRows)
  std::int64_t unit_count_ = 0;
};

}  // namespace kvbacking
