#import "coreml/memory_range.h"

#include <mutex>
#include <utility>

#include "kvbacking/error.h"

namespace kvbacking {
namespace {

using Entries = std::vector<std::weak_ptr<const MemoryRanges>>;

struct Registry {
  std::mutex mutex;
  Entries entries, claims;  // what somebody sees; what a running prediction writes
};

Registry& registry() {
  static Registry* const instance = new Registry;  // outlives every static destructor, by intention
  return *instance;
}

std::shared_ptr<void> add(Entries& entries, MemoryRanges ranges) {
  auto entry = std::make_shared<MemoryRanges>(std::move(ranges));
  std::erase_if(entries, [](const auto& weak) { return weak.expired(); });
  entries.push_back(entry);
  return entry;
}

void refuse_overlap(const MemoryRanges& ranges, const Entries& entries, const char* what) {
  for (const auto& weak : entries) {
    const auto entry = weak.lock();
    if (!entry) continue;
    for (const MemoryRange& other : *entry) {
      for (const MemoryRange& range : ranges) {
        if (!range.overlaps(other)) continue;
        throw Error(ErrorCode::kBackingInUse, "[session.predict] the storage of output '" + range.name + "' " + what +
                                                  " (its output '" + other.name + "')");
      }
    }
  }
}

}  // namespace

std::shared_ptr<void> claim_memory(MemoryRanges ranges) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  refuse_overlap(ranges, registry().entries,
                 "is still seen through another session's prediction: drop its views and release() it");
  refuse_overlap(ranges, registry().claims, "is being written by another session's prediction: wait for it");
  return add(registry().claims, std::move(ranges));
}

std::shared_ptr<void> register_viewed_memory(MemoryRanges ranges) {
  const std::lock_guard<std::mutex> lock(registry().mutex);
  return add(registry().entries, std::move(ranges));
}

MemoryRanges viewed_memory() {
  MemoryRanges alive;
  const std::lock_guard<std::mutex> lock(registry().mutex);
  for (const auto& weak : registry().entries) {
    if (const auto entry = weak.lock()) alive.insert(alive.end(), entry->begin(), entry->end());
  }
  return alive;
}

}  // namespace kvbacking
