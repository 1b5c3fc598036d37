// The Objective-C++ side of a State.
// Threads: `busy` is the whole protocol: whoever sets it owns the buffers until it is cleared. Ownership: the MLState
// and the model.
#pragma once

#import <CoreML/CoreML.h>

#include <atomic>
#include <memory>

#include "coreml/counters.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/error.h"
#include "kvbacking/state.h"

namespace kvbacking {

struct State::Impl {
  std::shared_ptr<Model> model;
  RetainPtr<id> state;  // MLState, a class that macOS 14 does not have
  std::atomic<bool> busy{false};
  Counted<Counter::kState> counted;
};

// Holds a state for one call. Throws Error(kBackingInUse) when another call holds it.
class StateUse {
 public:
  explicit StateUse(State::Impl& state);
  ~StateUse() { state_.busy.store(false, std::memory_order_release); }
  StateUse(const StateUse&) = delete;
  StateUse& operator=(const StateUse&) = delete;

 private:
  State::Impl& state_;
};

}  // namespace kvbacking
