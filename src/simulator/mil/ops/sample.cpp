// Bilinear and nearest samples of images at computed places: resample, affine, crop_resize.
#include <algorithm>
#include <array>
#include <cmath>

#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

enum class Border : std::uint8_t { kConstant, kBorder, kReflection, kSymmetric };

struct Image {
  std::int64_t height = 0, width = 0;
  Border border = Border::kConstant;
  float outside = 0.0F;  // for kConstant
};

// The index inside [0, size) that stands for `i`; -1: outside, for kConstant.
std::int64_t inside(std::int64_t i, std::int64_t size, Border border) {
  if (i >= 0 && i < size) return i;
  if (border == Border::kConstant) return -1;
  if (border == Border::kBorder || size == 1) return std::clamp<std::int64_t>(i, 0, size - 1);
  const std::int64_t period = border == Border::kReflection ? 2 * size - 2 : 2 * size;
  std::int64_t at = i % period;
  if (at < 0) at += period;
  return at < size ? at : (border == Border::kReflection ? period - at : period - 1 - at);
}

float pixel(const float* plane, const Image& image, std::int64_t row, std::int64_t column) {
  row = inside(row, image.height, image.border);
  column = inside(column, image.width, image.border);
  return row < 0 || column < 0 ? image.outside : plane[row * image.width + column];
}

// Far places are as good as any other outside; the bound keeps them representable. A NaN samples the outside.
double bounded(double at) { return std::isnan(at) ? -1e9 : std::clamp(at, -1e9, 1e9); }

float bilinear(const float* plane, const Image& image, double y, double x) {
  y = bounded(y);
  x = bounded(x);
  const auto row = static_cast<std::int64_t>(std::floor(y)), column = static_cast<std::int64_t>(std::floor(x));
  const auto down = static_cast<float>(y - std::floor(y)), right = static_cast<float>(x - std::floor(x));
  const float top = pixel(plane, image, row, column) * (1 - right) + pixel(plane, image, row, column + 1) * right;
  const float bottom =
      pixel(plane, image, row + 1, column) * (1 - right) + pixel(plane, image, row + 1, column + 1) * right;
  return top * (1 - down) + bottom * down;
}

float nearest(const float* plane, const Image& image, double y, double x) {
  return pixel(plane, image, static_cast<std::int64_t>(std::nearbyint(bounded(y))),
               static_cast<std::int64_t>(std::nearbyint(bounded(x))));
}

enum class Scale : std::uint8_t { kPixels, kMinusOneToOne, kZeroToOne };

double to_pixels(double at, std::int64_t size, Scale scale, bool align_corners) {
  const auto extent = static_cast<double>(size);
  if (scale == Scale::kPixels) return at;
  const double share = scale == Scale::kMinusOneToOne ? (at + 1) / 2 : at;
  return align_corners ? share * (extent - 1) : share * extent - 0.5;
}

Image image_of(Call& c, const Info& x) {
  if (x.rank() != 4 || x.storage != Storage::kFloat) c.fail("x must be a floating point tensor of rank 4");
  if (x.shape[2] == 0 || x.shape[3] == 0) c.fail("cannot sample an empty image");
  Image image{x.shape[2], x.shape[3], Border::kConstant, 0.0F};
  const std::string mode = c.text("padding_mode", "constant");
  if (mode == "border") {
    image.border = Border::kBorder;
  } else if (mode == "reflection") {
    image.border = Border::kReflection;
  } else if (mode == "symmetric") {
    image.border = Border::kSymmetric;
  } else if (mode != "constant") {
    c.fail("unknown padding_mode '" + mode + "'");
  }
  image.outside = c.number("padding_value", 0.0F);
  return image;
}

Scale scale_of(Call& c) {
  const std::string mode = c.text("coordinates_mode");
  if (mode == "unnormalized") return Scale::kPixels;
  if (mode == "normalized_minus_one_to_one") return Scale::kMinusOneToOne;
  if (mode != "normalized_zero_to_one") c.fail("unknown coordinates_mode '" + mode + "'");
  return Scale::kZeroToOne;
}

// Bounded like resize's, so that products stay far below 64 bits also where there is no image at all.
std::int64_t output_size(Call& c, std::string_view name, std::optional<std::int64_t> fallback = {}) {
  const std::int64_t size = c.integer(name, fallback);
  if (size < 1 || size > 1000000) c.fail(std::string(name) + " of " + std::to_string(size));
  return size;
}

bool is_nearest(Call& c) {
  const std::string mode = c.text("sampling_mode", "bilinear");
  if (mode != "bilinear" && mode != "nearest") c.fail("unknown sampling_mode '" + mode + "'");
  return mode == "nearest";
}

// coordinates [b, h, w, 2] hold (x, y) per output place.
void resample(Call& c) {
  const Info& x = c.in("x");
  const Info& at = c.in("coordinates");
  const Image image = image_of(c, x);
  const bool near = is_nearest(c), corners = c.flag("align_corners", false), ints = at.storage == Storage::kInt;
  const Scale scale = scale_of(c);
  if (at.rank() != 4 || at.shape[3] != 2 || at.shape[0] != x.shape[0] || at.storage == Storage::kBool) {
    c.fail("coordinates " + describe(at.shape) + " do not fit x " + describe(x.shape));
  }
  const std::int64_t channels = x.shape[1], places = at.shape[1] * at.shape[2];
  const Slot in = x.slot, where = at.slot, out = c.out({x.shape[0], channels, at.shape[1], at.shape[2]});
  const std::int64_t planes = x.shape[0] * channels;
  c.run([=](Frame& f) {
    for_rows(f.pool, planes, places * 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const float* from = f.f32(in) + plane * image.height * image.width;
        const std::int64_t first = plane / channels * places;
        for (std::int64_t i = 0; i < places; ++i) {
          const std::int64_t k = (first + i) * 2;
          const double px = ints ? static_cast<double>(f.i32(where)[k]) : static_cast<double>(f.f32(where)[k]);
          const double py = ints ? static_cast<double>(f.i32(where)[k + 1]) : static_cast<double>(f.f32(where)[k + 1]);
          const double column = to_pixels(px, image.width, scale, corners);
          const double row = to_pixels(py, image.height, scale, corners);
          f.f32(out)[plane * places + i] =
              near ? nearest(from, image, row, column) : bilinear(from, image, row, column);
        }
      }
    });
  });
}

// transform_matrix [b or 1, 6]: where an output place (x, y), from -1 to 1, looks in the input.
void affine(Call& c) {
  const Info& x = c.in("x");
  const Info& matrix = c.in("transform_matrix");
  const Image image = image_of(c, x);
  const bool near = is_nearest(c), corners = c.flag("align_corners", true);
  const Scale scale = scale_of(c);
  if (scale != Scale::kMinusOneToOne || !corners || image.border != Border::kConstant || image.outside != 0.0F) {
    c.fail("only corners from -1 to 1 with zeros outside are defined");
  }
  if (matrix.rank() != 2 || matrix.shape[1] != 6 || (matrix.shape[0] != 1 && matrix.shape[0] != x.shape[0]) ||
      matrix.storage != Storage::kFloat) {
    c.fail("transform_matrix " + describe(matrix.shape) + " does not fit x " + describe(x.shape));
  }
  const std::int64_t height = output_size(c, "output_height"), width = output_size(c, "output_width");
  const std::int64_t channels = x.shape[1], planes = x.shape[0] * channels;
  const bool shared = matrix.shape[0] == 1;
  const Slot in = x.slot, by = matrix.slot, out = c.out({x.shape[0], channels, height, width});
  const auto step = [](std::int64_t i, std::int64_t n) {
    return n > 1 ? 2.0 * static_cast<double>(i) / static_cast<double>(n - 1) - 1.0 : 0.0;
  };
  c.run([=](Frame& f) {
    for_rows(f.pool, planes, height * width * 8, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t plane = begin; plane < end; ++plane) {
        const float* from = f.f32(in) + plane * image.height * image.width;
        std::array<double, 6> m{};
        for (std::size_t k = 0; k < 6; ++k) {
          const std::int64_t row = shared ? 0 : plane / channels;
          m[k] = static_cast<double>(f.f32(by)[row * 6 + static_cast<std::int64_t>(k)]);
        }
        for (std::int64_t i = 0; i < height * width; ++i) {
          const double px = step(i % width, width), py = step(i / width, height);
          const double column = to_pixels(m[0] * px + m[1] * py + m[2], image.width, scale, corners);
          const double row = to_pixels(m[3] * px + m[4] * py + m[5], image.height, scale, corners);
          f.f32(out)[plane * height * width + i] =
              near ? nearest(from, image, row, column) : bilinear(from, image, row, column);
        }
      }
    });
  });
}

enum class Spread : std::uint8_t { kStrictCorners, kCorners, kDefault, kOffset, kUnaligned };

// Where output `i` of `n` samples between the box's first and last pixel: resize_bilinear's conventions, whose image
// goes from 0 to its last pixel.
double place(Spread spread, double first, double last, std::int64_t i, std::int64_t n) {
  const double count = static_cast<double>(n), at = static_cast<double>(i);
  switch (spread) {
    case Spread::kStrictCorners:
      return n > 1 ? first + at * (last - first) / (count - 1) : first;
    case Spread::kCorners:
      return n > 1 ? first + at * (last - first) / (count - 1) : (first + last) / 2;
    case Spread::kDefault:
      return first + at * (last - first + 1) / count;
    case Spread::kOffset:
      return first + (at + 0.5) * std::max(1.0, last - first) / count;
    case Spread::kUnaligned:
      return first + (at + 0.5) * (last - first + 1) / count - 0.5;
  }
  return first;
}

Spread spread_of(Call& c) {
  const std::string mode = c.text("sampling_mode", "DEFAULT");
  if (mode == "STRICT_ALIGN_CORNERS") return Spread::kStrictCorners;
  if (mode == "ALIGN_CORNERS") return Spread::kCorners;
  if (mode == "OFFSET_CORNERS") return Spread::kOffset;
  if (mode == "UNALIGN_CORNERS") return Spread::kUnaligned;
  if (mode != "DEFAULT") c.fail("unknown sampling_mode '" + mode + "'");
  return Spread::kDefault;
}

// iOS 17: boxes [n, 4] and box_indices [n] -> [n, c, h, w]. Before: roi [n, 1, 4, 1, 1] over every image -> [n, b, c,
// h, w], or [n, 1, 5, 1, 1] with the image's number in front -> [n, 1, c, h, w].
void crop_resize(Call& c) {
  const Info& x = c.in("x");
  const Image image = image_of(c, x);
  const bool old = c.has("roi");
  const Info& boxes = c.in(old ? "roi" : "boxes");
  const Info* indices = old ? nullptr : c.maybe("box_indices");
  const std::int64_t n = boxes.rank() ? boxes.shape[0] : 0, batch = x.shape[0], channels = x.shape[1];
  const std::int64_t numbers = old && boxes.rank() == 5 ? boxes.shape[2] : 4;
  const Shape expected = old ? Shape{n, 1, numbers, 1, 1} : Shape{n, 4};
  if (boxes.shape != expected || (numbers != 4 && numbers != 5) || boxes.storage == Storage::kBool) {
    c.fail("boxes of shape " + describe(boxes.shape));
  }
  if (indices && (indices->shape != Shape{n} || indices->storage != Storage::kInt)) {
    c.fail("box_indices " + describe(indices->shape) + " for " + std::to_string(n) + " boxes");
  }
  const std::int64_t height = output_size(c, "target_height", 1), width = output_size(c, "target_width", 1);
  const bool normalized = c.flag("normalized_coordinates", false);
  const auto scale = static_cast<double>(c.number("spatial_scale", 1.0F));
  const float outside = c.number("pad_value", 0.0F);
  const Spread spread = spread_of(c);
  const std::string mode = c.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST");
  const bool center = mode.starts_with("CENTER_SIZE"), width_first = mode.ends_with("WIDTH_FIRST");
  if (mode != std::string(center ? "CENTER_SIZE" : "CORNERS") + (width_first ? "_WIDTH_FIRST" : "_HEIGHT_FIRST")) {
    c.fail("unknown box_coordinate_mode '" + mode + "'");
  }
  const bool every = old && numbers == 4;  // each box on each image
  const bool ints = boxes.storage == Storage::kInt;
  const std::int64_t images = every ? batch : 1, places = height * width;
  Shape shape = old ? Shape{n, images, channels, height, width} : Shape{n, channels, height, width};
  const Slot in = x.slot, by = boxes.slot, which = indices ? indices->slot : kNoSlot, out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    const auto number = [&](std::int64_t i) {
      return ints ? static_cast<double>(f.i32(by)[i]) : static_cast<double>(f.f32(by)[i]);
    };
    for (std::int64_t box = 0; box < n; ++box) {
      const std::int64_t first = box * numbers + (numbers - 4);
      std::array<double, 4> edges{};  // top, left, bottom, right, in pixels
      for (std::size_t k = 0; k < 4; ++k) {
        const std::size_t to = width_first ? k ^ 1U : k;
        const double extent = static_cast<double>(to % 2 == 0 ? image.height : image.width) - 1;
        edges[to] = number(first + static_cast<std::int64_t>(k)) * scale * (normalized ? extent : 1.0);
      }
      if (center)
        edges = {edges[0] - edges[2] / 2, edges[1] - edges[3] / 2, edges[0] + edges[2] / 2, edges[1] + edges[3] / 2};
      for (std::int64_t k = 0; k < images; ++k) {
        std::int64_t chosen = every ? k : box;
        if (numbers == 5) {
          const double given = number(box * numbers);
          chosen = std::isfinite(given) ? static_cast<std::int64_t>(std::clamp(given, -1.0, 1e9)) : -1;
        }
        if (which != kNoSlot) chosen = f.i32(which)[box];
        if (chosen < 0 || chosen >= batch) {
          throw ModelError("box " + std::to_string(box) + " names image " + std::to_string(chosen) + " of " +
                           std::to_string(batch));
        }
        for (std::int64_t channel = 0; channel < channels; ++channel) {
          const float* plane = f.f32(in) + (chosen * channels + channel) * image.height * image.width;
          float* to = f.f32(out) + ((box * images + k) * channels + channel) * places;
          for (std::int64_t i = 0; i < places; ++i) {
            const double row = place(spread, edges[0], edges[2], i / width, height);
            const double column = place(spread, edges[1], edges[3], i % width, width);
            const bool within = row >= 0 && row <= static_cast<double>(image.height - 1) && column >= 0 &&
                                column <= static_cast<double>(image.width - 1);
            to[i] = within ? bilinear(plane, {image.height, image.width, Border::kBorder, 0.0F}, row, column) : outside;
          }
        }
      }
    }
  });
}

}  // namespace

OpTable sample_ops() { return {{"resample", resample}, {"affine", affine}, {"crop_resize", crop_resize}}; }

}  // namespace coremlsim::mil
