// Address ranges of outputs and inputs, and the ranges that somebody can still see, process-wide: no prediction may
// return memory that overlaps another output, an input, or what an earlier prediction still shows.
// Threads: any. Ownership: a prediction's ranges live as long as its lease; the registry keeps weak references, so that
// letting go takes no lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kvbacking {

struct MemoryRange {
  std::string name;  // of the output or input, for messages
  std::uintptr_t begin = 0, end = 0;
  std::uint32_t surface_id = 0;  // 0: not a surface
  bool overlaps(const MemoryRange& other) const noexcept {
    if (surface_id != 0 && surface_id == other.surface_id) return true;
    return begin < other.end && other.begin < end;
  }
};
using MemoryRanges = std::vector<MemoryRange>;

// Before a prediction writes memory that others may propose, too: keeps it to that prediction until the result dies.
// Throws Error(kBackingInUse) while an earlier prediction still shows it or another one is about to write it.
std::shared_ptr<void> claim_memory(MemoryRanges ranges);
std::shared_ptr<void> register_viewed_memory(MemoryRanges ranges);  // until the result dies
// Every range registered and still alive. Copies: a reference kept beyond the call would show another thread memory as
// viewed that was let go of meanwhile, and is that thread's own by now.
MemoryRanges viewed_memory();

}  // namespace kvbacking
