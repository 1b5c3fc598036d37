// The inside of a Prediction: what it shows, and the lease that keeps its set busy.
// Threads: the mutex guards release() against view(). Ownership: the lease holds the set (memory, arrays) and the
// registration of what can be seen; each view has a copy of it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coreml/counters.h"
#include "coreml/inspect.h"
#include "kvbacking/evidence.h"
#include "kvbacking/lease.h"
#include "kvbacking/session.h"

namespace kvbacking {

struct ShownOutput {
  std::string name;
  const void* data = nullptr;  // null for a surface: its address is known under a lock only
  Layout layout;
  std::shared_ptr<void> owner;
  std::shared_ptr<Surface> surface;
};

struct Prediction::Impl {
  Path path = Path::kFramework;
  std::vector<OutputEvidence> evidence;
  std::vector<InputEvidence> inputs;
  std::int64_t live = 0, predict_ns = 0, verify_ns = 0, copy_ns = 0;
  mutable std::mutex mutex;
  bool released = false;
  Lease lease;  // below the mutex: gone first
  std::vector<ShownOutput> outputs;
  Counted<Counter::kPrediction> counted;
};

}  // namespace kvbacking
