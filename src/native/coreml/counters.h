// Counts of native objects alive, for host.h live_counts(): lifetimes are proved by these after a garbage collection.
// Threads: atomic. Ownership: none; a Counted member counts the object that contains it.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvbacking {

enum class Counter { kArray, kSurface, kPool, kView, kModel, kSession, kPrediction, kInput, kState, kEnd };

inline std::atomic<std::int64_t>& live_counter(Counter counter) noexcept {
  static std::atomic<std::int64_t> counters[static_cast<int>(Counter::kEnd)];
  return counters[static_cast<int>(counter)];
}

// How many were ever made: what a bench subtracts around a timed part.
inline std::atomic<std::int64_t>& created_counter(Counter counter) noexcept {
  static std::atomic<std::int64_t> counters[static_cast<int>(Counter::kEnd)];
  return counters[static_cast<int>(counter)];
}

template <Counter counter>
class Counted {
 public:
  Counted() noexcept {
    live_counter(counter).fetch_add(1, std::memory_order_relaxed);
    created_counter(counter).fetch_add(1, std::memory_order_relaxed);
  }
  Counted(const Counted&) noexcept : Counted() {}
  Counted& operator=(const Counted&) noexcept = default;
  ~Counted() { live_counter(counter).fetch_sub(1, std::memory_order_relaxed); }
};

}  // namespace kvbacking
