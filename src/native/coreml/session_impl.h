// The inside of a Session: its sets, its counters, and whether it still trusts its backings.
// Threads: `mutex` guards stats, groups and the degraded reason; a set belongs to the holder of its slot's lease.
// Ownership: sets belong to the session and to the leases on them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coreml/backing_set.h"
#include "coreml/counters.h"
#include "coreml/inputs.h"
#include "coreml/session_plan.h"
#include "coreml/verify.h"
#include "kvbacking/lease.h"
#include "kvbacking/session.h"

namespace kvbacking {

// `depth` sets. Those of surfaces that are new on every prediction exist only while one holds them.
struct SetGroup {
  explicit SetGroup(std::size_t depth) : slots(depth), sets(depth) {}
  SlotTable slots;
  std::vector<std::shared_ptr<BackingSet>> sets;
};

// A set that this prediction holds.
struct TakenSet {
  std::shared_ptr<SetGroup> group;
  Lease lease;
  std::size_t slot = 0;
  std::shared_ptr<BackingSet> set;
};

struct Session::Impl {
  std::shared_ptr<const SessionPlan> plan;
  std::shared_ptr<const PoolTable> pools;
  mutable std::mutex mutex;
  bool closed = false;
  SessionStats stats;
  std::shared_ptr<SetGroup> proposing;  // null with mechanism framework and once degraded
  std::shared_ptr<SetGroup> control;    // null until needed
  Freshness freshness;
  std::atomic<std::uint64_t> sequence{1};
  Counted<Counter::kSession> counted;

  bool is_fresh_per_prediction() const noexcept;  // surfaces made anew for each prediction
  void create_sets();                             // everything that can fail early
  TakenSet take_set();                            // Error(kBackingInUse) when none is free
  void distrust(const TakenSet& taken, const std::vector<CheckFailure>& failures);
};

// One call of Session::predict, from inputs to a Prediction; throws what it finds. Call inside guarded().
std::unique_ptr<Prediction::Impl> run_session_prediction(Session::Impl& session, const std::vector<InputArray>& inputs,
                                                         const PredictOptions& options);

}  // namespace kvbacking
