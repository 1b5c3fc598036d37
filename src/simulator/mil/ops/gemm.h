// Matrix products over the thread pool. fp16 operands are widened in panels that stay in the second-level cache, so
// that weights are never copied whole. Threads: called by the thread that runs a frame; splits over the pool.
// Ownership: borrows its operands; keeps one panel of scratch memory per thread.
#pragma once

#include <cstdint>

#include "mil/program/tensor.h"
#include "mil/program/thread_pool.h"

namespace coremlsim::mil {

struct Operand {
  const void* data = nullptr;
  Storage storage = Storage::kFloat;  // kFloat or kHalf
  std::int64_t row_stride = 0;        // elements between rows as they lie in memory
  bool transposed = false;            // the logical matrix is the transpose of what lies in memory
};

// c[m, n] = a[m, k] * b[k, n] (+ bias[n]); c dense with rows c_stride apart, bias may be null.
void gemm(ThreadPool& pool, std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b,
          const float* bias, float* c, std::int64_t c_stride);

// The same on the calling thread alone, for callers that split over the pool themselves.
void gemm_serial(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b, const float* bias,
                 float* c, std::int64_t c_stride);

}  // namespace coremlsim::mil
