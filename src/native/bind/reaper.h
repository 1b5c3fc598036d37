// Python objects that native code owns (memory of somebody else) may be let go of on a framework's thread, where
// Python must not be touched: their owners go to a lock-free queue that is drained under the GIL.
// Threads: own() and drain() with the GIL; the returned pointer may die on any thread, without the GIL or any lock.
// Ownership: the queue owns what it holds until the next drain().
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>

namespace kvbacking::bind {

std::shared_ptr<void> own(nanobind::object object);
// Keeps an import and not only its object: an exporter may move or free what no importer holds.
template <typename Array>
std::shared_ptr<void> own_import(const Array& array) {
  return own(nanobind::capsule(new Array(array), [](void* p) noexcept { delete static_cast<Array*>(p); }));
}
void drain_reaper();
std::int64_t reaper_pending_count() noexcept;

}  // namespace kvbacking::bind
