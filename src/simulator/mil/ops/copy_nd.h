// Copies of strided blocks: the loops under transpose, pad, slice, concat, tile and their kin.
// Threads: called by the thread that runs a frame; splits over the pool.
// Ownership: borrows both sides.
#pragma once

#include <cstdint>
#include <vector>

#include "mil/package/types.h"
#include "mil/program/thread_pool.h"

namespace coremlsim::mil {

// out[o0 + i . out_strides] = in[i0 + i . in_strides] for every index i of `shape`; elements of `width` bytes (1, 2 or
// 4); strides and offsets in elements, may be negative or zero on the input side. Planned once, run often.
class CopyPlan {
 public:
  CopyPlan() = default;
  CopyPlan(const Shape& shape, const std::vector<std::int64_t>& in_strides, std::int64_t in_offset,
           const std::vector<std::int64_t>& out_strides, std::int64_t out_offset, std::int64_t width);
  void run(ThreadPool& pool, const void* in, void* out) const;

 private:
  struct Dimension {
    std::int64_t size, in_stride, out_stride;
  };
  void rows(std::int64_t begin, std::int64_t end, const std::uint8_t* in, std::uint8_t* out) const;

  std::vector<Dimension> outer_;
  Dimension inner_{1, 1, 1};
  bool tiled_ = false;  // the last two dimensions swap: copied in square tiles
  std::int64_t row_count_ = 1, in_offset_ = 0, out_offset_ = 0, width_ = 4;
};

}  // namespace coremlsim::mil
