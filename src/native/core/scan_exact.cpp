#include "core/scan_exact.h"

#include <algorithm>
#include <cmath>

#include "core/element.h"

namespace kvbacking {
namespace {

void note_first(std::int64_t& first, std::int64_t index) noexcept {
  if (first < 0) first = index;
}

void keep_lower(std::int64_t& first, std::int64_t other) noexcept {
  if (other >= 0 && (first < 0 || other < first)) first = other;
}

// visit(bytes of the element, logical index) over the tile, row by row.
template <class Element, class Visit>
void for_each(const Tile& tile, std::int64_t logical_start, const Visit& visit) {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const std::byte* bytes = tile.data + row * tile.row_stride;
    const std::int64_t row_start = logical_start + row * tile.row_length;
    for (std::int64_t i = 0; i < tile.row_length; ++i) {
      visit(bytes + i * static_cast<std::int64_t>(sizeof(typename Element::Stored)), row_start + i);
    }
  }
}

// True when the value is NaN or infinite, and then counted.
template <typename Value>
bool count_non_finite(Value value, std::int64_t index, bool live, Tally& tally) {
  if (std::isnan(value)) {
    ++tally.nan_count;
    if (live) ++tally.live_nan_count;
    note_first(tally.first_nan_index, index);
    return true;
  }
  if (std::isinf(value)) {
    ++tally.inf_count;
    if (live) ++tally.live_inf_count;
    note_first(tally.first_inf_index, index);
    return true;
  }
  return false;
}

}  // namespace

void Tally::include_range(double low, double high) noexcept {
  min = std::min(min, low);
  max = std::max(max, high);
  any_value = true;
}

void Tally::merge(const Tally& other) noexcept {
  nan_count += other.nan_count;
  inf_count += other.inf_count;
  live_nan_count += other.live_nan_count;
  live_inf_count += other.live_inf_count;
  tail_dirty_count += other.tail_dirty_count;
  residue_count += other.residue_count;
  keep_lower(first_nan_index, other.first_nan_index);
  keep_lower(first_inf_index, other.first_inf_index);
  keep_lower(first_tail_dirty_index, other.first_tail_dirty_index);
  keep_lower(first_residue_index, other.first_residue_index);
  live_all_zero = live_all_zero && other.live_all_zero;
  if (other.any_value) include_range(other.min, other.max);
}

void tally_live(DType dtype, const Tile& tile, std::int64_t logical_start, Tally& tally) {
  visit_dtype(dtype, [&]<class Element>(Element) {
    for_each<Element>(tile, logical_start, [&](const std::byte* bytes, std::int64_t index) {
      const auto value = Element::read(bytes);
      if (value != 0) tally.live_all_zero = false;
      count_non_finite(value, index, true, tally);
      if (!std::isnan(value)) tally.include_range(static_cast<double>(value), static_cast<double>(value));
    });
  });
}

void tally_tail(DType dtype, const Tile& tile, std::int64_t logical_start, Tally& tally) {
  visit_dtype(dtype, [&]<class Element>(Element) {
    for_each<Element>(tile, logical_start, [&](const std::byte* bytes, std::int64_t index) {
      count_non_finite(Element::read(bytes), index, false, tally);
      if (load_bits<typename Element::Stored>(bytes) != 0) {
        ++tally.tail_dirty_count;
        note_first(tally.first_tail_dirty_index, index);
      }
    });
  });
}

std::int64_t find_bits(std::size_t element_byte_count, const Tile& tile, std::int64_t logical_start,
                       std::uint64_t pattern, bool equal) {
  const auto find = [&]<class Element>(Element) {
    using Stored = typename Element::Stored;
    std::int64_t found = -1;
    for (std::int64_t row = 0; row < tile.rows && found < 0; ++row) {
      const std::byte* bytes = tile.data + row * tile.row_stride;
      for (std::int64_t i = 0; i < tile.row_length; ++i) {
        const auto bits = load_bits<Stored>(bytes + i * static_cast<std::int64_t>(sizeof(Stored)));
        if ((bits == static_cast<Stored>(pattern)) == equal) {
          found = logical_start + row * tile.row_length + i;
          break;
        }
      }
    }
    return found;
  };
  switch (element_byte_count) {
    case 1:
      return find(Int8Element{});
    case 2:
      return find(Float16Element{});
    case 4:
      return find(Float32Element{});
    default:
      return find(Float64Element{});
  }
}

}  // namespace kvbacking
