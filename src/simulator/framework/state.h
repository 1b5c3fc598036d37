// The buffers behind an MLState: dense, zero at first, updated in place by the engine.
// Threads: one prediction or access at a time; others are counted as the client's mistake.
// Ownership: the state owns its buffers.
#pragma once

#import <CoreML/CoreML.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "framework/multi_array.h"
#include "mil/engine.h"

struct MLStateStorage {
  struct Free {
    void operator()(void* bytes) const noexcept { std::free(bytes); }
  };
  struct Buffer {
    std::unique_ptr<void, Free> bytes;
    coremlsim::mil::TensorView view;
  };

  explicit MLStateStorage(const std::vector<coremlsim::mil::FeatureDescription>& states) {
    for (const auto& state : states) {
      const auto strides = coremlsim::dense_strides(state.shape);
      const std::size_t byte_count =
          coremlsim::span_byte_count(state.shape, strides, coremlsim::mil::byte_width(state.dtype));
      void* bytes = nullptr;
      if (posix_memalign(&bytes, 16384, byte_count) != 0) {
        throw std::bad_alloc();
      }
      std::memset(bytes, 0, byte_count);
      buffers[state.name] = {std::unique_ptr<void, Free>(bytes), {state.dtype, state.shape, strides, bytes}};
    }
  }

  std::map<std::string, Buffer> buffers;
  std::atomic<int> in_flight{0};
};
