#include "core/scan_worker.h"

#include <algorithm>
#include <cstdint>

namespace kvbacking {
namespace {

// Rows `first` to `last` (excluded) of a tile, or a part of one row.
Tile rows_of(const Tile& tile, std::int64_t first, std::int64_t last) {
  return {tile.data + first * tile.row_stride, last - first, tile.row_length, tile.row_stride};
}
Tile part_of(const Tile& tile, std::int64_t row, std::int64_t start, std::int64_t length, std::int64_t element) {
  return {tile.data + row * tile.row_stride + start * element, 1, length, tile.row_stride};
}

// Units usually follow each other. Only an address: it may lie past the array.
void prefetch_next(const Tile& tile) {
  const auto address =
      reinterpret_cast<std::uintptr_t>(tile.data) + static_cast<std::uintptr_t>(tile.rows * tile.row_stride);
  __builtin_prefetch(reinterpret_cast<const void*>(address));
}

}  // namespace

ScanWorker::ScanWorker(const ScanPlan& plan, DType dtype, LiveRange live, const ScanOptions& options)
    : plan_(plan),
      dtype_(dtype),
      element_(static_cast<std::int64_t>(element_size(dtype))),
      reference_element_(options.reference_layout == nullptr
                             ? 0
                             : static_cast<std::int64_t>(element_size(options.reference_layout->dtype))),
      live_(live),
      fill_pattern_(options.fill_pattern),
      parity_(dtype, options.reference_layout == nullptr ? dtype : options.reference_layout->dtype, options.max_abs,
              options.max_rel) {
  reset_range(dtype, range_);
}

void ScanWorker::scan_units(std::int64_t first, std::int64_t last, Digest* digest, ParityChunk* chunk) {
  for (std::int64_t index = first; index < last; ++index) {
    const Unit unit = plan_.load(index, buffer_);
    // One line of the next unit, asked for now, starts the processor's own prefetching across the page boundary:
    // measured 10 to 20 % of a scan. More lines, or any with parity, made it slower.
    if (chunk == nullptr) prefetch_next(unit.a);
    if (digest != nullptr) update(*digest, unit.a);
    scan_unit(unit, chunk);
  }
}

void ScanWorker::update(Digest& digest, const Tile& tile) const {
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    digest.update(tile.data + row * tile.row_stride, static_cast<std::size_t>(tile.row_length * element_));
  }
}

void ScanWorker::finish() noexcept {
  if (!range_used_) return;
  const Extremes extremes = reduce_range(dtype_, range_);
  tally_.include_range(extremes.min, extremes.max);
  tally_.live_all_zero = tally_.live_all_zero && extremes.all_zero;
}

void ScanWorker::digest_unit(std::int64_t unit, Digest& digest) { update(digest, plan_.load(unit, buffer_).a); }

// Cuts the unit where live and tail meet, into whole rows and parts of rows.
void ScanWorker::scan_unit(const Unit& unit, ParityChunk* chunk) {
  const std::int64_t length = unit.a.row_length;
  const std::int64_t count = unit.a.rows * length;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t position = (unit.logical_start + done) % live_.period;
    const bool live = position < live_.live;
    const std::int64_t run = std::min(count - done, (live ? live_.live : live_.period) - position);
    const std::int64_t row = done / length;
    const std::int64_t column = done % length;
    const std::int64_t logical = unit.logical_start + done;
    if (column == 0 && run >= length) {
      const std::int64_t rows = run / length;
      scan_tiles(rows_of(unit.a, row, row + rows), rows_of(unit.b, row, row + rows), logical, live, chunk);
      done += rows * length;
    } else {
      const std::int64_t part = std::min(run, length - column);
      scan_tiles(part_of(unit.a, row, column, part, element_), part_of(unit.b, row, column, part, reference_element_),
                 logical, live, chunk);
      done += part;
    }
  }
}

void ScanWorker::scan_tiles(const Tile& a, const Tile& b, std::int64_t logical, bool live, ParityChunk* chunk) {
  if (live) {
    scan_live(a, logical);
    if (chunk != nullptr) parity_.add(a, b, logical, *chunk);
  } else {
    scan_tail(a, logical);
  }
  if (fill_pattern_) scan_residue(a, logical);
}

void ScanWorker::scan_live(const Tile& tile, std::int64_t logical) {
  if (!has_range_kernel(dtype_)) return tally_live(dtype_, tile, logical, tally_);
  if (accumulate_range(dtype_, tile, &range_).non_finite) {
    tally_live(dtype_, tile, logical, tally_);
  } else {
    range_used_ = true;
  }
}

void ScanWorker::scan_tail(const Tile& tile, std::int64_t logical) {
  if (!has_range_kernel(dtype_)) return tally_tail(dtype_, tile, logical, tally_);
  const TileFlags flags = accumulate_range(dtype_, tile, nullptr);
  if (!flags.non_zero_bits) return;
  if (flags.non_finite) return tally_tail(dtype_, tile, logical, tally_);
  // Tails that may hold anything are long and plain: count them at full speed.
  tally_.tail_dirty_count += tile.rows * tile.row_length - count_equal(static_cast<std::size_t>(element_), tile, 0);
  if (tally_.first_tail_dirty_index < 0) {
    tally_.first_tail_dirty_index = find_bits(static_cast<std::size_t>(element_), tile, logical, 0, false);
  }
}

void ScanWorker::scan_residue(const Tile& tile, std::int64_t logical) {
  const std::int64_t count = count_equal(static_cast<std::size_t>(element_), tile, *fill_pattern_);
  tally_.residue_count += count;
  if (count != 0 && tally_.first_residue_index < 0) {
    tally_.first_residue_index = find_bits(static_cast<std::size_t>(element_), tile, logical, *fill_pattern_, true);
  }
}

}  // namespace kvbacking
