// conv and conv_transpose: im2col in column tiles and one matrix product per tile and group.
#include <algorithm>
#include <cstring>

#include "mil/kernels/kernels.h"
#include "mil/ops/call.h"
#include "mil/ops/gemm.h"
#include "mil/ops/registry.h"
#include "mil/ops/window.h"
#include "mil/program/thread_scratch.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kTileElements = 1 << 18;  // 1 MiB of unfolded input

struct Conv {
  Window w;
  std::int64_t groups = 1, out_channels = 0;

  std::int64_t in_group() const { return w.channels / groups; }
  std::int64_t out_group() const { return out_channels / groups; }
  std::int64_t taps() const { return in_group() * w.kernel_count(); }
  // The input of a group is its own unfolded form.
  bool pointwise() const {
    return w.kernel_count() == 1 && w.stride == Window::Three{1, 1, 1} && w.before == Window::Three{0, 0, 0} &&
           w.after == Window::Three{0, 0, 0};
  }
};

// One row of the unfolded input: tap (k0, k1, k2) of one channel for the output positions [first, first + count).
void unfold_row(const Window& w, const float* x, std::int64_t k0, std::int64_t k1, std::int64_t k2, std::int64_t first,
                std::int64_t count, float* row) {
  std::int64_t done = 0;
  while (done < count) {
    const std::int64_t position = first + done;
    const std::int64_t o2 = position % w.out[2], o1 = position / w.out[2] % w.out[1],
                       o0 = position / w.out[2] / w.out[1];
    const std::int64_t run = std::min(count - done, w.out[2] - o2);
    const std::int64_t i0 = o0 * w.stride[0] - w.before[0] + k0 * w.dilation[0];
    const std::int64_t i1 = o1 * w.stride[1] - w.before[1] + k1 * w.dilation[1];
    float* to = row + done;
    done += run;
    if (i0 < 0 || i0 >= w.in[0] || i1 < 0 || i1 >= w.in[1]) {
      std::fill_n(to, run, 0.0F);
      continue;
    }
    const float* line = x + (i0 * w.in[1] + i1) * w.in[2];
    const std::int64_t shift = k2 * w.dilation[2] - w.before[2], step = w.stride[2];
    // Output positions whose input lies inside: 0 <= o * step + shift < in.
    const std::int64_t low = std::clamp((shift < 0 ? (-shift + step - 1) / step : 0), o2, o2 + run);
    const std::int64_t high = std::clamp(w.in[2] > shift ? (w.in[2] - shift + step - 1) / step : 0, low, o2 + run);
    std::fill(to, to + (low - o2), 0.0F);
    if (step == 1) {
      std::memcpy(to + (low - o2), line + low + shift, static_cast<std::size_t>(high - low) * sizeof(float));
    } else {
      for (std::int64_t o = low; o < high; ++o) to[o - o2] = line[o * step + shift];
    }
    std::fill(to + (high - o2), to + run, 0.0F);
  }
}

void unfold(const Conv& conv, const float* x, std::int64_t first, std::int64_t count, float* columns) {
  const Window& w = conv.w;
  std::int64_t row = 0;
  for (std::int64_t channel = 0; channel < conv.in_group(); ++channel) {
    for (std::int64_t k0 = 0; k0 < w.kernel[0]; ++k0) {
      for (std::int64_t k1 = 0; k1 < w.kernel[1]; ++k1) {
        for (std::int64_t k2 = 0; k2 < w.kernel[2]; ++k2, ++row) {
          unfold_row(w, x + channel * w.in_count(), k0, k1, k2, first, count, columns + row * count);
        }
      }
    }
  }
}

void fill_rows(float* out, std::int64_t rows, std::int64_t stride, std::int64_t count, const float* bias) {
  for (std::int64_t row = 0; row < rows; ++row) std::fill_n(out + row * stride, count, bias ? bias[row] : 0.0F);
}

// Output positions [first, first + count) of one image and group. `weights` are fp32 here.
void conv_tile(const Conv& conv, const float* x, const float* weights, const float* bias, float* out,
               std::int64_t first, std::int64_t count) {
  const std::int64_t taps = conv.taps(), positions = conv.w.out_count();
  fill_rows(out + first, conv.out_group(), positions, count, bias);
  if (conv.pointwise()) {
    kernels().matmul_add(conv.out_group(), count, taps, {weights, taps, false}, {x + first, positions, false},
                         out + first, positions);
    return;
  }
  float* columns = thread_scratch(taps * count);
  unfold(conv, x, first, count, columns);
  kernels().matmul_add(conv.out_group(), count, taps, {weights, taps, false}, {columns, count, false}, out + first,
                       positions);
}

void run_conv(Frame& f, const Conv& conv, const float* x, const float* weights, const float* bias, float* out) {
  const std::int64_t positions = conv.w.out_count(), taps = conv.taps();
  std::int64_t tile = std::clamp<std::int64_t>(kTileElements / std::max<std::int64_t>(taps, 1), 16, positions);
  const std::int64_t images = conv.w.batch * conv.groups;
  // Enough tiles for every thread, as long as they do not get tiny.
  while (tile > 64 && images * ((positions + tile - 1) / tile) < 2 * f.pool.size()) tile = (tile + 1) / 2;
  const std::int64_t tiles = (positions + tile - 1) / tile;
  f.pool.parallel_for(images * tiles, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t image = task / tiles, first = task % tiles * tile, group = image % conv.groups;
      conv_tile(conv, x + image * conv.in_group() * conv.w.in_count(), weights + group * conv.out_group() * taps,
                bias ? bias + group * conv.out_group() : nullptr, out + image * conv.out_group() * positions, first,
                std::min(tile, positions - first));
    }
  });
}

// fp16 weights are widened for the time of the op: every tile uses all of them.
struct Weights {
  Slot slot, wide;
  std::int64_t count;
  const float* ready(Frame& f) const {
    if (wide == kNoSlot) return f.f32(slot);
    kernels().f16_to_f32(f.get<std::uint16_t>(slot), f.f32(wide), count);
    return f.f32(wide);
  }
};

Weights read_weights(Call& c, const Info& weight) {
  return {weight.slot, weight.storage == Storage::kHalf ? c.scratch(weight.count * 4) : kNoSlot, weight.count};
}

Shape result_shape(const Window& w, std::int64_t channels) {
  Shape shape{w.batch, channels};
  shape.insert(shape.end(), w.out.end() - static_cast<std::ptrdiff_t>(w.spatial_rank), w.out.end());
  return shape;
}

Slot read_bias(Call& c, std::int64_t channels) {
  const Info* bias = c.maybe("bias");
  if (!bias) return kNoSlot;
  if (bias->count != channels || bias->storage != Storage::kFloat) c.fail("needs one bias per output channel");
  return bias->slot;
}

std::int64_t read_groups(Call& c, std::int64_t in_channels, std::int64_t out_channels) {
  const std::int64_t groups = c.integer("groups", 1);
  if (groups < 1 || in_channels % groups != 0 || out_channels % groups != 0)
    c.fail("groups of " + std::to_string(groups));
  return groups;
}

void conv(Call& c) {
  const Info& x = c.in("x");
  const Info& weight = c.weight("weight");
  if (weight.rank() != x.rank() || storage_of(weight.dtype) != Storage::kFloat) c.fail("weight does not fit x");
  Conv plan;
  plan.w = read_window(c, x, Shape(weight.shape.begin() + 2, weight.shape.end()), WindowUse::kConv);
  plan.out_channels = weight.shape[0];
  plan.groups = read_groups(c, plan.w.channels, plan.out_channels);
  if (weight.shape[1] != plan.in_group()) {
    c.fail("weight " + describe(weight.shape) + " does not fit x " + describe(x.shape) + " in " +
           std::to_string(plan.groups) + " groups");
  }
  const Slot xs = x.slot, bias = read_bias(c, plan.out_channels);
  const Weights weights = read_weights(c, weight);
  const Slot out = c.out(result_shape(plan.w, plan.out_channels));
  c.cost(2.0 * static_cast<double>(plan.w.batch * plan.out_channels) * static_cast<double>(plan.w.out_count()) *
         static_cast<double>(plan.taps()));
  c.run([=](Frame& f) {
    run_conv(f, plan, f.f32(xs), weights.ready(f), bias == kNoSlot ? nullptr : f.f32(bias), f.f32(out));
  });
}

// Adds the columns of one group back into the image: the transpose of unfold().
void fold(const Conv& conv, const float* columns, float* image) {
  const Window& w = conv.w;  // of the convolution whose gradient this is: `in` is the result
  std::int64_t row = 0;
  for (std::int64_t channel = 0; channel < conv.in_group(); ++channel) {
    for (std::int64_t k0 = 0; k0 < w.kernel[0]; ++k0) {
      for (std::int64_t k1 = 0; k1 < w.kernel[1]; ++k1) {
        for (std::int64_t k2 = 0; k2 < w.kernel[2]; ++k2, ++row) {
          const float* from = columns + row * w.out_count();
          for (std::int64_t position = 0; position < w.out_count(); ++position) {
            const std::int64_t o2 = position % w.out[2], o1 = position / w.out[2] % w.out[1],
                               o0 = position / w.out[2] / w.out[1];
            const std::int64_t i0 = o0 * w.stride[0] - w.before[0] + k0 * w.dilation[0];
            const std::int64_t i1 = o1 * w.stride[1] - w.before[1] + k1 * w.dilation[1];
            const std::int64_t i2 = o2 * w.stride[2] - w.before[2] + k2 * w.dilation[2];
            if (i0 < 0 || i0 >= w.in[0] || i1 < 0 || i1 >= w.in[1] || i2 < 0 || i2 >= w.in[2]) continue;
            image[((channel * w.in[0] + i0) * w.in[1] + i1) * w.in[2] + i2] += from[position];
          }
        }
      }
    }
  }
}

// The geometry of the convolution that maps the result back to x.
Window transposed_window(Call& c, const Info& x, const Shape& kernel, std::int64_t out_channels) {
  Window w = read_window(c, x, kernel, WindowUse::kTransposed);
  const std::string type = c.text("pad_type", "valid");
  const bool given = c.has("output_shape");
  Shape output = given ? c.ints("output_shape") : Shape{};
  if (given && output.size() == w.spatial_rank) output.insert(output.begin(), {w.batch, out_channels});
  if (given && (output.size() != x.shape.size() || output[1] != out_channels)) c.fail("output_shape does not fit");
  const std::size_t missing = 3 - w.spatial_rank;
  const std::vector<std::int64_t> pad = c.ints_or("pad", std::vector<std::int64_t>(2 * w.spatial_rank, 0));
  w.out = w.in;
  for (std::size_t d = 0; d < 3; ++d) {
    const std::int64_t full = (w.out[d] - 1) * w.stride[d] + w.extent(d);
    w.before[d] = w.after[d] = 0;
    w.in[d] = full;
    if (d < missing) continue;
    if (type == "custom") {
      w.before[d] = pad[2 * (d - missing)];
      w.in[d] = full - w.before[d] - pad[2 * (d - missing) + 1];
    } else if (type == "same" || type == "same_lower") {
      w.in[d] = w.out[d] * w.stride[d];
      const std::int64_t total = std::max<std::int64_t>(0, full - w.in[d]);
      w.before[d] = type == "same" ? total / 2 : total - total / 2;
    }
    if (given) w.in[d] = output[2 + d - missing];
    if (w.in[d] < 1) c.fail("the result is empty");
  }
  w.channels = out_channels;
  (void)element_count({w.batch, w.channels, w.in[0], w.in[1], w.in[2]}, "the result");
  return w;
}

void conv_transpose(Call& c) {
  const Info& x = c.in("x");
  const Info& weight = c.weight("weight");
  if (weight.rank() != x.rank() || x.rank() < 3 || storage_of(weight.dtype) != Storage::kFloat)
    c.fail("weight does not fit x");
  const std::int64_t in_channels = x.shape[1];
  if (weight.shape[0] != in_channels)
    c.fail("weight " + describe(weight.shape) + " does not fit x " + describe(x.shape));
  std::int64_t out_channels = 0;
  const std::int64_t asked = c.integer("groups", 1);
  if (asked < 1 || __builtin_mul_overflow(weight.shape[1], asked, &out_channels))
    c.fail("groups of " + std::to_string(asked));
  Conv plan;  // the convolution from the result (in) to x (out)
  plan.groups = read_groups(c, in_channels, out_channels);
  plan.w = transposed_window(c, x, Shape(weight.shape.begin() + 2, weight.shape.end()), out_channels);
  plan.out_channels = in_channels;
  const Slot xs = x.slot, bias = read_bias(c, out_channels);
  const Weights weights = read_weights(c, weight);
  const std::int64_t taps = plan.taps(), positions = plan.w.out_count();
  if (taps > kMaxElements / std::max<std::int64_t>(positions, 1)) c.fail("the unfolded result is too large");
  const Slot columns = c.scratch(taps * positions * 4);
  Shape shape{plan.w.batch, out_channels};
  shape.insert(shape.end(), plan.w.in.end() - static_cast<std::ptrdiff_t>(plan.w.spatial_rank), plan.w.in.end());
  const Slot out = c.out(std::move(shape));
  c.cost(2.0 * static_cast<double>(plan.w.batch * in_channels) * static_cast<double>(positions) *
         static_cast<double>(taps));
  c.run([=](Frame& f) {
    const float* w = weights.ready(f);
    for (std::int64_t image = 0; image < plan.w.batch * plan.groups; ++image) {
      const std::int64_t group = image % plan.groups, rows = plan.out_group();
      gemm(f.pool, taps, positions, rows, {w + group * rows * taps, Storage::kFloat, taps, true},
           {f.f32(xs) + image * rows * positions, Storage::kFloat, positions, false}, nullptr, f.f32(columns),
           positions);
      float* result = f.f32(out) + image * plan.in_group() * plan.w.in_count();
      fill_rows(result, plan.in_group(), plan.w.in_count(), plan.w.in_count(),
                bias == kNoSlot ? nullptr : f.f32(bias) + group * plan.in_group());
      fold(plan, f.f32(columns), result);
    }
  });
}

}  // namespace

OpTable conv_ops() { return {{"conv", conv}, {"conv_transpose", conv_transpose}}; }

}  // namespace coremlsim::mil
