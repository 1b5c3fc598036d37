// Who holds a set: a slot is busy while any copy of its Lease lives.
// Threads: acquire under the caller's own serialisation or not, it is atomic; the last Lease may die on any thread,
// takes no lock and touches no Python object.
// Ownership: a Lease owns what was attached to it (the backings of a per-prediction set) and lets go of it when the
// last copy dies, before the slot becomes free. Errors: none of its own; std::bad_alloc leaves the slot free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace kvbacking {

class SlotTable;

class Lease {
 public:
  Lease() = default;  // holds nothing
  static constexpr std::size_t kNoSlot = static_cast<std::size_t>(-1);
  explicit operator bool() const noexcept { return state_ != nullptr; }
  std::size_t slot() const noexcept;              // index in its table; kNoSlot when it holds nothing
  void attach(std::shared_ptr<void> kept_alive);  // let go of before the slot is; not while another thread attaches
  struct State;

 private:
  friend class SlotTable;
  explicit Lease(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

class SlotTable {
 public:
  explicit SlotTable(std::size_t depth);
  std::optional<Lease> try_acquire();          // the lowest free slot; empty when all are busy or quarantined
  void quarantine(std::size_t slot) noexcept;  // never handed out again
  std::size_t depth() const noexcept;
  std::size_t busy_count() const noexcept;
  std::size_t quarantined_count() const noexcept;
  static std::int64_t live_lease_count() noexcept;

 private:
  friend class Lease;
  struct Slots;  // shared with the leases: outlives the table if they do
  std::shared_ptr<Slots> slots_;
};

}  // namespace kvbacking
