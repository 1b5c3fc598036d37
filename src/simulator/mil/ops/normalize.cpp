// softmax and the normalisations.
#include <algorithm>
#include <cmath>
#include <limits>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kLanes = 512;  // columns of a strided reduction that are worked on together

void need_float(Call& c, const Info& x) {
  if (x.storage != Storage::kFloat) c.fail("needs a floating point tensor");
}

Slot optional_vector(Call& c, std::string_view name, std::int64_t count) {
  const Info* info = c.maybe(name);
  if (!info) return kNoSlot;
  if (info->count != count || info->storage != Storage::kFloat) {
    c.fail(std::string(name) + " " + describe(info->shape) + " does not have " + std::to_string(count) + " entries");
  }
  return info->slot;
}

const float* vector_or_null(const Frame& f, Slot slot) { return slot == kNoSlot ? nullptr : f.f32(slot); }

// One [n, inner] slice, column by column but kLanes at a time.
void softmax_columns(const float* in, float* out, std::int64_t n, std::int64_t inner) {
  float peak[kLanes], total[kLanes];
  for (std::int64_t first = 0; first < inner; first += kLanes) {
    const std::int64_t lanes = std::min(kLanes, inner - first);
    std::fill_n(peak, lanes, -std::numeric_limits<float>::infinity());
    std::fill_n(total, lanes, 0.0F);
    for (std::int64_t i = 0; i < n; ++i) {
      kernels().binary_f32(Binary::kMaximum, peak, 1, in + i * inner + first, 1, peak, lanes);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      float* row = out + i * inner + first;
      kernels().binary_f32(Binary::kSub, in + i * inner + first, 1, peak, 1, row, lanes);
      kernels().unary(Unary::kExp, row, row, lanes, 0.0F, 0.0F);
      kernels().binary_f32(Binary::kAdd, total, 1, row, 1, total, lanes);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      float* row = out + i * inner + first;
      kernels().binary_f32(Binary::kDiv, row, 1, total, 1, row, lanes);
    }
  }
}

void softmax(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), -1));
  const std::int64_t n = x.shape[axis], inner = dense_strides(x.shape)[axis];
  const std::int64_t outer = n ? x.count / n / std::max<std::int64_t>(inner, 1) : 0;
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.cost(8.0 * static_cast<double>(x.count));
  c.run([=](Frame& f) {
    for_rows(f.pool, outer, n * inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (inner == 1) {
          kernels().softmax_row(f.f32(in) + row * n, f.f32(out) + row * n, n);
        } else {
          softmax_columns(f.f32(in) + row * n * inner, f.f32(out) + row * n * inner, n, inner);
        }
      }
    });
  });
}

// One [n, inner] slice normalised along n, kLanes columns at a time.
void layer_norm_columns(const float* in, float* out, std::int64_t n, std::int64_t inner, const float* gamma,
                        const float* beta, float epsilon) {
  float mean[kLanes], square[kLanes], row[kLanes];
  const float scale = 1.0F / static_cast<float>(n);
  for (std::int64_t first = 0; first < inner; first += kLanes) {
    const std::int64_t lanes = std::min(kLanes, inner - first);
    std::fill_n(mean, lanes, 0.0F);
    std::fill_n(square, lanes, 0.0F);
    for (std::int64_t i = 0; i < n; ++i)
      kernels().binary_f32(Binary::kAdd, mean, 1, in + i * inner + first, 1, mean, lanes);
    kernels().binary_f32(Binary::kMul, mean, 1, &scale, 0, mean, lanes);
    for (std::int64_t i = 0; i < n; ++i) {
      kernels().binary_f32(Binary::kSub, in + i * inner + first, 1, mean, 1, row, lanes);
      kernels().unary(Unary::kSquare, row, row, lanes, 0.0F, 0.0F);
      kernels().binary_f32(Binary::kAdd, square, 1, row, 1, square, lanes);
    }
    kernels().binary_f32(Binary::kMul, square, 1, &scale, 0, square, lanes);
    kernels().unary(Unary::kRsqrt, square, square, lanes, epsilon, 0.0F);
    for (std::int64_t i = 0; i < n; ++i) {
      float* to = out + i * inner + first;
      kernels().binary_f32(Binary::kSub, in + i * inner + first, 1, mean, 1, to, lanes);
      kernels().binary_f32(Binary::kMul, to, 1, square, 1, to, lanes);
      kernels().unary(Unary::kLinear, to, to, lanes, gamma ? gamma[i] : 1.0F, beta ? beta[i] : 0.0F);
    }
  }
}

void layer_norm(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const std::vector<std::int64_t> axes = c.axes("axes", x.rank());
  if (axes.empty() || axes.back() - axes.front() + 1 != static_cast<std::int64_t>(axes.size())) {
    c.fail("normalised axes must be neighbours");
  }
  std::int64_t n = 1, inner = 1;
  for (std::int64_t d = axes.front(); d < x.rank(); ++d)
    (d <= axes.back() ? n : inner) *= x.shape[static_cast<std::size_t>(d)];
  const std::int64_t outer = n * inner ? x.count / n / inner : 0;
  const Slot gamma = optional_vector(c, "gamma", n), beta = optional_vector(c, "beta", n);
  const float epsilon = c.number("epsilon", 1e-5F);
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.cost(8.0 * static_cast<double>(x.count));
  c.run([=](Frame& f) {
    const float *g = vector_or_null(f, gamma), *b = vector_or_null(f, beta);
    for_rows(f.pool, outer, n * inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* from = f.f32(in) + row * n * inner;
        float* to = f.f32(out) + row * n * inner;
        if (inner == 1) {
          kernels().layer_norm_row(from, to, n, g, b, epsilon);
        } else {
          layer_norm_columns(from, to, n, inner, g, b, epsilon);
        }
      }
    });
  });
}

// Channels lie on axis 1.
struct Channels {
  std::int64_t count = 0, inner = 0, rows = 0;
};

Channels channels_of(Call& c, const Info& x) {
  if (x.rank() < 2) c.fail("needs a rank of at least 2");
  Channels channels{x.shape[1], 1, x.shape[0] * x.shape[1]};
  for (std::size_t d = 2; d < x.shape.size(); ++d) channels.inner *= x.shape[d];
  return channels;
}

void batch_norm(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const Channels channels = channels_of(c, x);
  const Slot mean = optional_vector(c, "mean", channels.count),
             variance = optional_vector(c, "variance", channels.count);
  if (mean == kNoSlot || variance == kNoSlot) c.fail("needs mean and variance");
  const Slot gamma = optional_vector(c, "gamma", channels.count), beta = optional_vector(c, "beta", channels.count);
  const float epsilon = c.number("epsilon", 1e-5F);
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    const float *g = vector_or_null(f, gamma), *b = vector_or_null(f, beta);
    for_rows(f.pool, channels.rows, channels.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t channel = row % channels.count;
        const float scale = (g ? g[channel] : 1.0F) / std::sqrt(f.f32(variance)[channel] + epsilon);
        const float shift = (b ? b[channel] : 0.0F) - f.f32(mean)[channel] * scale;
        kernels().unary(Unary::kLinear, f.f32(in) + row * channels.inner, f.f32(out) + row * channels.inner,
                        channels.inner, scale, shift);
      }
    });
  });
}

void instance_norm(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const Channels channels = channels_of(c, x);
  const Slot gamma = optional_vector(c, "gamma", channels.count), beta = optional_vector(c, "beta", channels.count);
  const float epsilon = c.number("epsilon", 1e-5F);
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    const float *g = vector_or_null(f, gamma), *b = vector_or_null(f, beta);
    for_rows(f.pool, channels.rows, channels.inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t channel = row % channels.count;
        float* to = f.f32(out) + row * channels.inner;
        kernels().layer_norm_row(f.f32(in) + row * channels.inner, to, channels.inner, nullptr, nullptr, epsilon);
        kernels().unary(Unary::kLinear, to, to, channels.inner, g ? g[channel] : 1.0F, b ? b[channel] : 0.0F);
      }
    });
  });
}

// Over the last three dimensions (fewer when the rank is smaller).
void l2_norm(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const float epsilon = c.number("epsilon", 1e-6F);
  std::int64_t length = 1;
  for (std::size_t d = x.shape.size() > 3 ? x.shape.size() - 3 : 0; d < x.shape.size(); ++d) length *= x.shape[d];
  const std::int64_t rows = length ? x.count / length : 0;
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t row = 0; row < rows; ++row) {
      const float* from = f.f32(in) + row * length;
      const double norm = std::sqrt(kernels().sum_of_squares(from, length) + static_cast<double>(epsilon));
      kernels().unary(Unary::kLinear, from, f.f32(out) + row * length, length, static_cast<float>(1.0 / norm), 0.0F);
    }
  });
}

// Across channels: x / (k + alpha / size * sum of squares of `size` neighbouring channels) ^ beta.
void local_response_norm(Call& c) {
  const Info& x = c.in("x");
  need_float(c, x);
  const Channels channels = channels_of(c, x);
  const std::int64_t size = c.integer("size");
  if (size < 1) c.fail("size must be positive");
  const float alpha = c.number("alpha", 1e-4F), beta = c.number("beta", 0.75F), k = c.number("k", 1.0F);
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t row = 0; row < channels.rows; ++row) {
      const std::int64_t channel = row % channels.count, base = row - channel;
      const std::int64_t first = std::max<std::int64_t>(0, channel - (size - 1) / 2);
      const std::int64_t last = std::min(channels.count - 1, channel + size / 2);
      for (std::int64_t i = 0; i < channels.inner; ++i) {
        float total = 0.0F;
        for (std::int64_t other = first; other <= last; ++other) {
          const float v = f.f32(in)[(base + other) * channels.inner + i];
          total += v * v;
        }
        const std::int64_t at = row * channels.inner + i;
        f.f32(out)[at] = f.f32(in)[at] / std::pow(k + alpha / static_cast<float>(size) * total, beta);
      }
    }
  });
}

}  // namespace

OpTable normalize_ops() {
  return {
      {"softmax", softmax},       {"layer_norm", layer_norm},
      {"batch_norm", batch_norm}, {"instance_norm", instance_norm},
      {"l2_norm", l2_norm},       {"local_response_norm", local_response_norm},
  };
}

}  // namespace coremlsim::mil
