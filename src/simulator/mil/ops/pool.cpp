// max_pool, avg_pool, l2_pool.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"
#include "mil/ops/window.h"

namespace coremlsim::mil {
namespace {

enum class Pool : std::uint8_t { kMax, kAverage, kL2 };

struct Range {
  std::int64_t begin, end;  // inside the input
  std::int64_t padded;      // elements of the window inside input and padding
};

Range range_of(const Window& w, std::size_t d, std::int64_t o) {
  const std::int64_t first = o * w.stride[d] - w.before[d];
  return {std::max<std::int64_t>(first, 0), std::min(first + w.kernel[d], w.in[d]),
          std::min(first + w.kernel[d], w.in[d] + w.after[d]) - first};
}

float pool_one(Pool how, const Window& w, const float* x, const Range& a, const Range& b, const Range& c,
               bool exclude) {
  double total = 0.0;
  float peak = -std::numeric_limits<float>::infinity();
  for (std::int64_t i = a.begin; i < a.end; ++i) {
    for (std::int64_t j = b.begin; j < b.end; ++j) {
      const float* line = x + (i * w.in[1] + j) * w.in[2];
      for (std::int64_t k = c.begin; k < c.end; ++k) {
        if (how == Pool::kMax) {
          peak = std::max(peak, line[k]);
        } else {
          total += how == Pool::kL2 ? static_cast<double>(line[k] * line[k]) : static_cast<double>(line[k]);
        }
      }
    }
  }
  if (how == Pool::kMax) return peak;
  if (how == Pool::kL2) return static_cast<float>(std::sqrt(total));
  const std::int64_t inside = (a.end - a.begin) * (b.end - b.begin) * (c.end - c.begin);
  const std::int64_t count = exclude ? inside : a.padded * b.padded * c.padded;
  return count > 0 ? static_cast<float>(total / static_cast<double>(count)) : 0.0F;
}

template <Pool kHow>
void pool(Call& c) {
  const Info& x = c.in("x");
  const Window w = read_window(c, x, c.ints("kernel_sizes"), WindowUse::kPool);
  const bool exclude = kHow == Pool::kAverage && c.flag("exclude_padding_from_average", false);
  Shape shape{w.batch, w.channels};
  shape.insert(shape.end(), w.out.end() - static_cast<std::ptrdiff_t>(w.spatial_rank), w.out.end());
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.cost(static_cast<double>(w.batch * w.channels * w.out_count()) * static_cast<double>(w.kernel_count()));
  c.run([=](Frame& f) {
    for_rows(f.pool, w.batch * w.channels, w.out_count() * w.kernel_count(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* from = f.f32(in) + row * w.in_count();
        float* to = f.f32(out) + row * w.out_count();
        for (std::int64_t i = 0; i < w.out[0]; ++i) {
          for (std::int64_t j = 0; j < w.out[1]; ++j) {
            for (std::int64_t k = 0; k < w.out[2]; ++k) {
              *to++ = pool_one(kHow, w, from, range_of(w, 0, i), range_of(w, 1, j), range_of(w, 2, k), exclude);
            }
          }
        }
      }
    });
  });
}

}  // namespace

OpTable pool_ops() {
  return {{"max_pool", pool<Pool::kMax>}, {"avg_pool", pool<Pool::kAverage>}, {"l2_pool", pool<Pool::kL2>}};
}

}  // namespace coremlsim::mil
