// What a running op sees: one pointer per slot and the thread pool.
// Threads: one thread runs a frame; an op may split its own work over the pool.
// Ownership: borrows the memory that the slots point to.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "mil/engine.h"
#include "mil/program/tensor.h"
#include "mil/program/thread_pool.h"

namespace coremlsim::mil {

class Frame {
 public:
  Frame(ThreadPool& pool, std::vector<void*> slots) : pool(pool), slots(std::move(slots)) {}

  template <class T>
  T* get(Slot slot) const {
    return static_cast<T*>(slots[static_cast<std::size_t>(slot)]);
  }
  float* f32(Slot slot) const { return get<float>(slot); }
  std::int32_t* i32(Slot slot) const { return get<std::int32_t>(slot); }
  std::uint8_t* bytes(Slot slot) const { return get<std::uint8_t>(slot); }

  ThreadPool& pool;
  std::vector<void*> slots;
};

using Step = std::function<void(Frame&)>;

}  // namespace coremlsim::mil
