#include "kvbacking/lease.h"

#include <algorithm>
#include <atomic>

namespace kvbacking {
namespace {

// A slot's bits. A set can be quarantined while somebody still sees it, so the two are independent.
constexpr std::uint8_t kFree = 0;
constexpr std::uint8_t kBusy = 1;
constexpr std::uint8_t kQuarantined = 2;

std::atomic<std::int64_t> g_live_leases{0};

}  // namespace

struct SlotTable::Slots {
  explicit Slots(std::size_t depth) : states(depth) {}
  std::size_t count(std::uint8_t bit) const noexcept {
    return static_cast<std::size_t>(std::ranges::count_if(
        states, [bit](const auto& state) { return (state.load(std::memory_order_acquire) & bit) != 0; }));
  }
  std::vector<std::atomic<std::uint8_t>> states;
};

struct Lease::State {
  State(std::shared_ptr<SlotTable::Slots> table, std::size_t index) : slots(std::move(table)), slot(index) {
    g_live_leases.fetch_add(1, std::memory_order_relaxed);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    // What was attached must be gone before the next holder can get the slot; latest first, as a stack unwinds.
    while (!attached.empty()) attached.pop_back();
    slots->states[slot].fetch_and(static_cast<std::uint8_t>(~kBusy), std::memory_order_release);
    g_live_leases.fetch_sub(1, std::memory_order_relaxed);
  }
  std::shared_ptr<SlotTable::Slots> slots;
  std::size_t slot;
  std::vector<std::shared_ptr<void>> attached;
};

std::size_t Lease::slot() const noexcept { return state_ ? state_->slot : kNoSlot; }

void Lease::attach(std::shared_ptr<void> kept_alive) {
  if (state_) state_->attached.push_back(std::move(kept_alive));
}

SlotTable::SlotTable(std::size_t depth) : slots_(std::make_shared<Slots>(depth)) {}

std::optional<Lease> SlotTable::try_acquire() {
  for (std::size_t i = 0; i < slots_->states.size(); ++i) {
    std::uint8_t expected = kFree;
    if (!slots_->states[i].compare_exchange_strong(expected, kBusy, std::memory_order_acquire,
                                                   std::memory_order_relaxed)) {
      continue;
    }
    try {
      return Lease(std::make_shared<Lease::State>(slots_, i));
    } catch (...) {
      slots_->states[i].fetch_and(static_cast<std::uint8_t>(~kBusy), std::memory_order_release);
      throw;
    }
  }
  return std::nullopt;
}

void SlotTable::quarantine(std::size_t slot) noexcept {
  if (slot < slots_->states.size()) slots_->states[slot].fetch_or(kQuarantined, std::memory_order_acq_rel);
}

std::size_t SlotTable::depth() const noexcept { return slots_->states.size(); }
std::size_t SlotTable::busy_count() const noexcept { return slots_->count(kBusy); }
std::size_t SlotTable::quarantined_count() const noexcept { return slots_->count(kQuarantined); }
std::int64_t SlotTable::live_lease_count() noexcept { return g_live_leases.load(std::memory_order_relaxed); }

}  // namespace kvbacking
