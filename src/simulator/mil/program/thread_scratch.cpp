#include "mil/program/thread_scratch.h"

#include "mil/program/aligned_buffer.h"

namespace coremlsim::mil {

float* thread_scratch(std::int64_t elements) {
  thread_local AlignedBuffer buffer;
  thread_local std::int64_t capacity = 0;
  if (capacity < elements) {
    buffer.reset();
    buffer = allocate(elements * 4);
    capacity = elements;
  }
  return static_cast<float*>(buffer.get());
}

}  // namespace coremlsim::mil
