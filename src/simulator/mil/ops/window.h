// The geometry that convolutions and pools share: up to three spatial dimensions, always held as three.
// Threads: pure values; safe everywhere.
// Ownership: none.
#pragma once

#include <array>
#include <cstdint>

#include "mil/ops/call.h"

namespace coremlsim::mil {

struct Window {
  std::int64_t batch = 0, channels = 0;
  std::size_t spatial_rank = 0;
  using Three = std::array<std::int64_t, 3>;
  Three in{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1}, before{0, 0, 0}, after{0, 0, 0}, out{1, 1, 1};

  std::int64_t in_count() const { return in[0] * in[1] * in[2]; }
  std::int64_t out_count() const { return out[0] * out[1] * out[2]; }
  std::int64_t kernel_count() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::int64_t extent(std::size_t d) const { return (kernel[d] - 1) * dilation[d] + 1; }
};

enum class WindowUse : std::uint8_t { kConv, kPool, kTransposed };

// Reads strides, dilations, pad_type, pad and (for pools) ceil_mode of an op over x [n, c, spatial...]. For
// kTransposed the padding and the result's size are left to the caller.
Window read_window(Call& c, const Info& x, const Shape& kernel, WindowUse use);

}  // namespace coremlsim::mil
