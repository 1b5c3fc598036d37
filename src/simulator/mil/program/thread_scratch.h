// Scratch memory of the calling thread, reused from op to op.
// Threads: one buffer per thread.
// Ownership: the thread owns it; the pointer is valid until the next call on the same thread.
#pragma once

#include <cstdint>

namespace coremlsim::mil {

// Grows only; bounded by the largest block that any op of the process asked for.
float* thread_scratch(std::int64_t elements);

}  // namespace coremlsim::mil
