// Resizing and cropping of the last two dimensions, and the moves between depth and space.
#include <algorithm>
#include <cmath>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

struct Sample {
  std::int64_t low, high;
  float weight;  // of `high`
};

using Grid = std::vector<Sample>;

Grid nearest_grid(std::int64_t in, std::int64_t out) {
  Grid grid;
  for (std::int64_t i = 0; i < out; ++i) {
    const std::int64_t at = std::min(in - 1, i * in / out);
    grid.push_back({at, at, 0.0F});
  }
  return grid;
}

// Where each output element samples, for the named modes of resize_bilinear.
Grid linear_grid(std::int64_t in, std::int64_t out, const std::string& mode) {
  const double x_in = static_cast<double>(in), x_out = static_cast<double>(out);
  double spacing = 0.0, first = 0.0;
  if (mode == "STRICT_ALIGN_CORNERS" || mode == "ALIGN_CORNERS") {
    spacing = out > 1 ? (x_in - 1) / (x_out - 1) : 0.0;
    if (out == 1 && mode == "ALIGN_CORNERS") first = (x_in - 1) / 2;
  } else if (mode == "DEFAULT") {
    spacing = x_in / x_out;
  } else if (mode == "OFFSET_CORNERS") {
    spacing = std::max(1.0, x_in - 1) / x_out;
    first = 0.5 * spacing;
  } else {  // UNALIGN_CORNERS
    spacing = x_in / x_out;
    first = 0.5 * spacing - 0.5;
  }
  Grid grid;
  for (std::int64_t i = 0; i < out; ++i) {
    const double at = std::clamp(first + static_cast<double>(i) * spacing, 0.0, x_in - 1);
    const auto low = static_cast<std::int64_t>(at);
    grid.push_back({low, std::min(low + 1, in - 1), static_cast<float>(at - static_cast<double>(low))});
  }
  return grid;
}

void resize_step(Call& c, const Info& x, const Grid& rows, const Grid& columns) {
  if (x.storage != Storage::kFloat || x.rank() < 2) c.fail("needs a floating point tensor of rank 2 or more");
  Shape shape = x.shape;
  const std::int64_t h = shape[shape.size() - 2], w = shape.back();
  shape[shape.size() - 2] = static_cast<std::int64_t>(rows.size());
  shape.back() = static_cast<std::int64_t>(columns.size());
  if (h == 0 || w == 0) c.fail("cannot resize an empty image");
  const std::int64_t images = x.count / h / w;
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    const auto height = static_cast<std::int64_t>(rows.size()), width = static_cast<std::int64_t>(columns.size());
    for_rows(f.pool, images * height, width, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const Sample& r = rows[static_cast<std::size_t>(row % height)];
        const float* top = f.f32(in) + (row / height * h + r.low) * w;
        const float* bottom = f.f32(in) + (row / height * h + r.high) * w;
        float* to = f.f32(out) + row * width;
        for (const Sample& s : columns) {
          const float a = top[s.low] + (top[s.high] - top[s.low]) * s.weight;
          const float b = bottom[s.low] + (bottom[s.high] - bottom[s.low]) * s.weight;
          *to++ = a + (b - a) * r.weight;
        }
      }
    });
  });
}

std::int64_t size_of(Call& c, const Info& x, std::size_t from_end) {
  if (x.shape.size() < 2) c.fail("needs a rank of at least 2");
  return x.shape[x.shape.size() - from_end];
}

std::int64_t scaled_size(Call& c, const Info& x, std::size_t from_end, std::string_view name) {
  const double factor = static_cast<double>(c.number(name, 1.0F));
  const double size = std::floor(static_cast<double>(size_of(c, x, from_end)) * factor);
  if (!(size >= 1.0) || size > 1e6) c.fail(std::string(name) + " of " + std::to_string(factor));
  return static_cast<std::int64_t>(size);
}

std::int64_t target_size(Call& c, std::string_view name) {
  const std::int64_t size = c.integer(name, 1);
  if (size < 1 || size > 1000000) c.fail(std::string(name) + " of " + std::to_string(size));
  return size;
}

void upsample_nearest_neighbor(Call& c) {
  const Info& x = c.in("x");
  resize_step(c, x, nearest_grid(size_of(c, x, 2), scaled_size(c, x, 2, "scale_factor_height")),
              nearest_grid(size_of(c, x, 1), scaled_size(c, x, 1, "scale_factor_width")));
}

void resize_nearest_neighbor(Call& c) {
  const Info& x = c.in("x");
  resize_step(c, x, nearest_grid(size_of(c, x, 2), target_size(c, "target_size_height")),
              nearest_grid(size_of(c, x, 1), target_size(c, "target_size_width")));
}

void upsample_bilinear(Call& c) {
  const Info& x = c.in("x");
  const bool half_pixel = c.flag("half_pixel_centers", !c.flag("align_corners", true));
  const std::string mode = c.flag("align_corners", true) ? "STRICT_ALIGN_CORNERS"
                           : half_pixel                  ? "UNALIGN_CORNERS"
                                                         : "DEFAULT";
  resize_step(c, x, linear_grid(size_of(c, x, 2), scaled_size(c, x, 2, "scale_factor_height"), mode),
              linear_grid(size_of(c, x, 1), scaled_size(c, x, 1, "scale_factor_width"), mode));
}

void check_mode(Call& c, const std::string& mode) {
  if (mode != "STRICT_ALIGN_CORNERS" && mode != "ALIGN_CORNERS" && mode != "DEFAULT" && mode != "OFFSET_CORNERS" &&
      mode != "UNALIGN_CORNERS") {
    c.fail("unknown sampling_mode '" + mode + "'");
  }
}

void resize_bilinear(Call& c) {
  const Info& x = c.in("x");
  const std::string mode = c.text("sampling_mode", "DEFAULT");
  check_mode(c, mode);
  resize_step(c, x, linear_grid(size_of(c, x, 2), target_size(c, "target_size_height"), mode),
              linear_grid(size_of(c, x, 1), target_size(c, "target_size_width"), mode));
}

// The last `resized_dims` dimensions take their sizes from the end of `shape`; 0 keeps the input's.
void resize(Call& c) {
  const Info& x = c.in("x");
  const std::vector<std::int64_t> wanted = c.ints("shape");
  const std::int64_t count = c.integer("resized_dims");
  const std::string how = c.text("interpolation_mode", "LINEAR"), mode = c.text("sampling_mode", "DEFAULT");
  if (count < 1 || count > 2 || count > x.rank() || count > static_cast<std::int64_t>(wanted.size())) {
    c.fail("resized_dims of " + std::to_string(count) + ", supported are 1 and 2");
  }
  if (how != "LINEAR" && how != "NEAREST_NEIGHBOR") c.fail("unknown interpolation_mode '" + how + "'");
  if (how == "NEAREST_NEIGHBOR" && mode != "DEFAULT") {
    c.fail("the simulator has NEAREST_NEIGHBOR with sampling_mode DEFAULT alone, not '" + mode + "'");
  }
  check_mode(c, mode);
  const auto grid = [&](std::size_t from_end) {
    const std::int64_t size = size_of(c, x, from_end);
    if (static_cast<std::int64_t>(from_end) > count) return nearest_grid(size, size);
    const std::int64_t given = wanted[wanted.size() - from_end], target = given == 0 ? size : given;
    if (target < 1 || target > 1000000) c.fail("a target size of " + std::to_string(target));
    return how == "LINEAR" ? linear_grid(size, target, mode) : nearest_grid(size, target);
  };
  resize_step(c, x, grid(2), grid(1));
}

void crop(Call& c) {
  const Info& x = c.in("x");
  const std::vector<std::int64_t> rows = c.ints("crop_height"), columns = c.ints("crop_width");
  if (rows.size() != 2 || columns.size() != 2) c.fail("crop_height and crop_width need two numbers each");
  Shape shape = x.shape;
  const std::int64_t height = size_of(c, x, 2) - rows[0] - rows[1], width = size_of(c, x, 1) - columns[0] - columns[1];
  if (std::min({rows[0], rows[1], columns[0], columns[1], height, width}) < 0) {
    c.fail("cannot crop that much of " + describe(x.shape));
  }
  shape[shape.size() - 2] = height;
  shape.back() = width;
  const std::vector<std::int64_t> strides = dense_strides(x.shape);
  const CopyPlan plan(shape, strides, rows[0] * strides[strides.size() - 2] + columns[0], dense_strides(shape), 0,
                      storage_bytes(x.storage));
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) { plan.run(f.pool, f.get<void>(in), f.get<void>(out)); });
}

// Splits and merges of [n, c, h, w]: `split` is the input as six dimensions, `order` how they are read for the output.
void move_blocks(Call& c, const Info& x, const Shape& split, const std::vector<std::size_t>& order, Shape shape) {
  const std::vector<std::int64_t> own = dense_strides(split);
  Shape sizes;
  std::vector<std::int64_t> strides;
  for (const std::size_t d : order) {
    sizes.push_back(split[d]);
    strides.push_back(own[d]);
  }
  const CopyPlan plan(sizes, strides, 0, dense_strides(sizes), 0, storage_bytes(x.storage));
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) { plan.run(f.pool, f.get<void>(in), f.get<void>(out)); });
}

std::int64_t block_size(Call& c, const Info& x, std::string_view name) {
  const std::int64_t block = c.integer(name);
  if (x.rank() != 4 || block < 1 || block > 4096) c.fail("needs rank 4 and a positive " + std::string(name));
  return block;
}

template <bool kPixelOrder>
void to_space(Call& c) {
  const Info& x = c.in("x");
  const std::int64_t b = block_size(c, x, kPixelOrder ? "upscale_factor" : "block_size");
  const Shape& s = x.shape;
  if (s[1] % (b * b) != 0) c.fail("channels " + std::to_string(s[1]) + " are no multiple of " + std::to_string(b * b));
  const std::int64_t depth = s[1] / (b * b);
  const Shape split = kPixelOrder ? Shape{s[0], depth, b, b, s[2], s[3]} : Shape{s[0], b, b, depth, s[2], s[3]};
  move_blocks(c, x, split,
              kPixelOrder ? std::vector<std::size_t>{0, 1, 4, 2, 5, 3} : std::vector<std::size_t>{0, 3, 4, 1, 5, 2},
              {s[0], depth, s[2] * b, s[3] * b});
}

template <bool kPixelOrder>
void to_depth(Call& c) {
  const Info& x = c.in("x");
  const std::int64_t b = block_size(c, x, kPixelOrder ? "downscale_factor" : "block_size");
  const Shape& s = x.shape;
  if (s[2] % b != 0 || s[3] % b != 0) c.fail(describe(s) + " does not divide into blocks of " + std::to_string(b));
  const Shape split{s[0], s[1], s[2] / b, b, s[3] / b, b};
  move_blocks(c, x, split,
              kPixelOrder ? std::vector<std::size_t>{0, 1, 3, 5, 2, 4} : std::vector<std::size_t>{0, 3, 5, 1, 2, 4},
              {s[0], s[1] * b * b, s[2] / b, s[3] / b});
}

}  // namespace

OpTable resize_ops() {
  return {
      {"upsample_nearest_neighbor", upsample_nearest_neighbor},
      {"upsample_bilinear", upsample_bilinear},
      {"resize_nearest_neighbor", resize_nearest_neighbor},
      {"resize_bilinear", resize_bilinear},
      {"resize", resize},
      {"crop", crop},
      {"pixel_shuffle", to_space<true>},
      {"depth_to_space", to_space<false>},
      {"pixel_unshuffle", to_depth<true>},
      {"space_to_depth", to_depth<false>},
  };
}

}  // namespace coremlsim::mil
