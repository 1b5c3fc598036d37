// What one thread does in a scan: digest, range, tail, residue and parity, unit by unit. Core-internal.
// Threads: one ScanWorker per thread, units in ascending order. Ownership: borrows the plan; owns its tallies.
#pragma once

#include <cstdint>
#include <optional>

#include "core/digest.h"
#include "core/parity.h"
#include "core/scan_exact.h"
#include "core/scan_kernels.h"
#include "core/scan_plan.h"
#include "kvbacking/scan.h"

namespace kvbacking {

// Which logical indices are live: the first `live` of every `period`.
struct LiveRange {
  std::int64_t live;
  std::int64_t period;
};

class ScanWorker {
 public:
  ScanWorker(const ScanPlan& plan, DType dtype, LiveRange live, const ScanOptions& options);

  // Units [first, last). `digest` (may be null) is fed on the way, while the bytes are in the cache; `chunk` is null
  // without parity.
  void scan_units(std::int64_t first, std::int64_t last, Digest* digest, ParityChunk* chunk);
  void digest_unit(std::int64_t unit, Digest& digest);
  // After the last unit: what the SIMD lanes hold goes into the tally.
  void finish() noexcept;

  const Tally& tally() const noexcept { return tally_; }
  ParityTally& parity() noexcept { return parity_; }

 private:
  void update(Digest& digest, const Tile& tile) const;
  void scan_unit(const Unit& unit, ParityChunk* chunk);
  void scan_tiles(const Tile& a, const Tile& b, std::int64_t logical, bool live, ParityChunk* chunk);
  void scan_live(const Tile& tile, std::int64_t logical);
  void scan_tail(const Tile& tile, std::int64_t logical);
  void scan_residue(const Tile& tile, std::int64_t logical);

  const ScanPlan& plan_;
  DType dtype_;
  std::int64_t element_, reference_element_;
  LiveRange live_;
  std::optional<std::uint64_t> fill_pattern_;
  UnitBuffer buffer_;
  RangeState range_{};
  bool range_used_ = false;
  Tally tally_;
  ParityTally parity_;
};

}  // namespace kvbacking
