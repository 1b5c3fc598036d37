// One backing for every backed output: the memory, the array over it, and the options that propose them.
// Threads: a set belongs to whoever holds its slot's lease. Ownership: owns memory and arrays; predictions and views
// keep the set itself alive through their lease, so that it outlives the session.
#pragma once

#import <CoreML/CoreML.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "coreml/memory_range.h"
#include "coreml/multi_array.h"
#include "coreml/retain_ptr.h"
#include "coreml/session_plan.h"
#include "coreml/surface.h"
#include "kvbacking/allocation.h"

namespace kvbacking {

struct Backing {
  Layout layout;
  ArrayGeometry geometry;                  // raw, external
  std::byte* data = nullptr;               // raw, external
  std::shared_ptr<Allocation> allocation;  // raw: the memory, with canaries
  std::shared_ptr<void> owner;             // raw, external: what the wrapper's deallocator lets go of
  std::shared_ptr<Surface> surface;        // surface, pool
  RetainPtr<MLMultiArray*> array;
  bool allowed = false;  // what isAllowedValue: said of `array`
  MemoryRange range() const;
};

// Memory of ours for an output that is copied; kept for the set's next prediction.
struct CopyTarget {
  Layout layout;
  std::shared_ptr<Allocation> memory;
};

// What is written into a set before a prediction.
struct Preparation {
  bool sentinels = false;  // and canaries and row gaps
  std::optional<std::uint8_t> fill_byte;
  std::uint64_t seed = 0;
};

// The pools of a session with mechanism pool: one per distinct surface, shared by the outputs that look alike.
class PoolTable {
 public:
  explicit PoolTable(const SessionPlan& plan);
  const SurfacePool& pool_of(std::size_t output) const { return *pools_[output]; }

 private:
  std::vector<std::shared_ptr<SurfacePool>> pools_;
};

class BackingSet {
 public:
  // Without backings: the control, which only copies. Control memory is allocated here.
  static std::shared_ptr<BackingSet> create_control(std::shared_ptr<const SessionPlan> plan);
  // Allocates memory for mechanism raw, surface or pool, or takes external storage; wraps nothing yet.
  static std::shared_ptr<BackingSet> create(std::shared_ptr<const SessionPlan> plan, std::size_t slot,
                                            const PoolTable* pools);
  ~BackingSet();

  // Fills, then wraps what has no array yet (or must have a new one) and asks isAllowedValue: of each new array:
  // throws Error(kContract) naming every output that is not allowed.
  void prepare(const Preparation& preparation);
  // Keeps external surfaces to this prediction. Throws Error(kBackingInUse) when something else uses one.
  std::vector<SurfaceUse> use_surfaces() const;
  // After a failed or ignored prediction: new arrays, and new surfaces, before the next one.
  void renew_next_time() noexcept { renew_ = true; }

  const std::vector<Backing>& backings() const noexcept { return backings_; }
  bool proposes() const noexcept { return !backings_.empty(); }
  MLPredictionOptions* options() const noexcept { return options_.get(); }
  bool has_sentinels(std::size_t output) const noexcept { return sentinels_[output]; }
  bool has_row_gaps(std::size_t output) const noexcept { return gaps_[output]; }
  std::uint8_t gap_byte() const noexcept { return gap_byte_; }
  CopyTarget& copy_target(std::size_t output, const Layout& layout);

 private:
  explicit BackingSet(std::shared_ptr<const SessionPlan> plan);
  bool is_external_surface(const Backing& backing) const noexcept;
  void refuse_input_surfaces() const;
  void renew();
  void fill(std::size_t output, const Preparation& preparation);
  void wrap_all();
  std::shared_ptr<const SessionPlan> plan_;
  std::vector<Backing> backings_;
  std::vector<std::optional<CopyTarget>> copies_;
  std::vector<bool> sentinels_, gaps_;
  std::uint8_t gap_byte_ = 0;
  bool renew_ = false;
  RetainPtr<MLPredictionOptions*> options_;
};

}  // namespace kvbacking
