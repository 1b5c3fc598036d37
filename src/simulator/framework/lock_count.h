// How often a surface or a pixel buffer is locked, and how often it ever was.
// Threads: any; the counts are atomic. Ownership: values only.
#pragma once

#include <atomic>
#include <cstdint>

#include "framework/control.h"

namespace coremlsim {

class LockCount {
 public:
  void lock(bool read_only) noexcept {
    ++(read_only ? readers_ : writers_);
    ++generation_;
  }
  // False, and a violation is counted, when no such lock is held.
  bool unlock(bool read_only) noexcept {
    auto& count = read_only ? readers_ : writers_;
    std::int32_t held = count.load();
    do {
      if (held <= 0) {
        count_violation(Violation::kUnpairedLock);
        return false;
      }
    } while (!count.compare_exchange_weak(held, held - 1));
    return true;
  }
  bool is_locked() const noexcept { return readers_ + writers_ > 0; }
  std::uint64_t generation() const noexcept { return generation_; }  // locks taken so far

 private:
  std::atomic<std::int32_t> readers_{0}, writers_{0};
  std::atomic<std::uint64_t> generation_{0};
};

}  // namespace coremlsim
