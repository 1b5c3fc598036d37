#import "coreml/memory_range.h"

#include <mutex>
#include <utility>

namespace kvbacking {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<const MemoryRanges>> entries;
};

Registry& registry() {
  static Registry* const instance = new Registry;  // outlives every static destructor, by intention
  return *instance;
}

}  // namespace

std::shared_ptr<void> register_viewed_memory(MemoryRanges ranges) {
  auto entry = std::make_shared<MemoryRanges>(std::move(ranges));
  const std::lock_guard<std::mutex> lock(registry().mutex);
  auto& entries = registry().entries;
  std::erase_if(entries, [](const auto& weak) { return weak.expired(); });
  entries.push_back(entry);
  return entry;
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
