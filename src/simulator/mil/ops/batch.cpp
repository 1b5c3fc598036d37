// Moves between batch and space, and sequences of unequal length reversed in place.
#include <algorithm>
#include <cstring>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kMostPlaces = 1 << 16;  // in a block: each is a plan of its own

struct Blocks {
  std::int64_t height = 1, width = 1;                     // of a block
  std::int64_t top = 0, bottom = 0, left = 0, right = 0;  // padding or crops
};

Blocks blocks_of(Call& c, const Info& x, std::string_view margins) {
  const std::vector<std::int64_t> block = c.ints("block_shape"), edge = c.ints(margins);
  if (x.rank() != 4 || block.size() != 2 || edge.size() != 4) c.fail("needs rank 4 and two spatial dimensions");
  if (std::min(block[0], block[1]) < 1 || *std::min_element(edge.begin(), edge.end()) < 0) {
    c.fail("block_shape must be positive and " + std::string(margins) + " not negative");
  }
  if (block[0] > kMostPlaces / block[1]) {
    c.fail("a block of " + std::to_string(block[0]) + " x " + std::to_string(block[1]) + " has more than " +
           std::to_string(kMostPlaces) + " places");
  }
  return {block[0], block[1], edge[0], edge[1], edge[2], edge[3]};
}

// The first and the last element of [0, n) for which lowest <= i * step + offset < highest.
struct Span {
  Span(std::int64_t n, std::int64_t step, std::int64_t offset, std::int64_t lowest, std::int64_t highest) {
    first = std::max<std::int64_t>(0, (lowest - offset + step - 1) / step);
    if (lowest - offset <= 0) first = 0;
    const std::int64_t end = highest - offset <= 0 ? 0 : std::min(n, (highest - offset + step - 1) / step);
    count = std::max<std::int64_t>(0, end - first);
  }
  std::int64_t first = 0, count = 0;
};

// Element (i, j) of block place (a, b) is the padded image's (i * height + a, j * width + b).
void space_to_batch(Call& c) {
  const Info& x = c.in("x");
  const Blocks b = blocks_of(c, x, "paddings");
  const std::int64_t height = x.shape[2] + b.top + b.bottom, width = x.shape[3] + b.left + b.right;
  if (height % b.height != 0 || width % b.width != 0) {
    c.fail("the padded image " + std::to_string(height) + " x " + std::to_string(width) +
           " does not divide into blocks");
  }
  const Shape shape{x.shape[0] * b.height * b.width, x.shape[1], height / b.height, width / b.width};
  const std::vector<std::int64_t> from = dense_strides(x.shape), to = dense_strides(shape);
  std::vector<CopyPlan> plans;
  for (std::int64_t i = 0; i < b.height; ++i) {
    for (std::int64_t j = 0; j < b.width; ++j) {
      const Span rows(shape[2], b.height, i - b.top, 0, x.shape[2]);
      const Span columns(shape[3], b.width, j - b.left, 0, x.shape[3]);
      if (rows.count == 0 || columns.count == 0) continue;
      plans.emplace_back(
          Shape{x.shape[0], x.shape[1], rows.count, columns.count},
          std::vector<std::int64_t>{from[0], from[1], from[2] * b.height, from[3] * b.width},
          (rows.first * b.height + i - b.top) * from[2] + (columns.first * b.width + j - b.left) * from[3], to,
          (i * b.width + j) * x.shape[0] * to[0] + rows.first * to[2] + columns.first * to[3],
          storage_bytes(x.storage));
    }
  }
  const std::int64_t bytes = element_count(shape, "space_to_batch") * storage_bytes(x.storage);
  const Slot in = x.slot, out = c.out(shape);
  c.run([=](Frame& f) {
    std::memset(f.get<void>(out), 0, static_cast<std::size_t>(bytes));
    for (const CopyPlan& plan : plans) plan.run(f.pool, f.get<void>(in), f.get<void>(out));
  });
}

void batch_to_space(Call& c) {
  const Info& x = c.in("x");
  const Blocks b = blocks_of(c, x, "crops");
  if (x.shape[0] % (b.height * b.width) != 0)
    c.fail("a batch of " + std::to_string(x.shape[0]) + " has no such blocks");
  const Shape shape{x.shape[0] / (b.height * b.width), x.shape[1], x.shape[2] * b.height - b.top - b.bottom,
                    x.shape[3] * b.width - b.left - b.right};
  if (shape[2] < 0 || shape[3] < 0) c.fail("crops larger than the image");
  const std::vector<std::int64_t> from = dense_strides(x.shape), to = dense_strides(shape);
  std::vector<CopyPlan> plans;
  for (std::int64_t i = 0; i < b.height; ++i) {
    for (std::int64_t j = 0; j < b.width; ++j) {
      const Span rows(x.shape[2], b.height, i - b.top, 0, shape[2]);
      const Span columns(x.shape[3], b.width, j - b.left, 0, shape[3]);
      if (rows.count == 0 || columns.count == 0) continue;
      plans.emplace_back(Shape{shape[0], shape[1], rows.count, columns.count}, from,
                         (i * b.width + j) * shape[0] * from[0] + rows.first * from[2] + columns.first * from[3],
                         std::vector<std::int64_t>{to[0], to[1], to[2] * b.height, to[3] * b.width},
                         (rows.first * b.height + i - b.top) * to[2] + (columns.first * b.width + j - b.left) * to[3],
                         storage_bytes(x.storage));
    }
  }
  const Slot in = x.slot, out = c.out(shape);
  c.run([=](Frame& f) {
    for (const CopyPlan& plan : plans) plan.run(f.pool, f.get<void>(in), f.get<void>(out));
  });
}

void reverse_sequence(Call& c) {
  const Info& x = c.in("x");
  const Info& lengths = c.in("lengths");
  const auto sequence = static_cast<std::size_t>(c.axis("seq_axis", x.rank(), 0));
  const auto batch = static_cast<std::size_t>(c.axis("batch_axis", x.rank(), 0));
  const std::int64_t size = x.shape[sequence], lines = x.shape[batch];
  if (sequence == batch || lengths.shape != Shape{lines} || lengths.storage != Storage::kInt) {
    c.fail("lengths " + describe(lengths.shape) + " do not fit x " + describe(x.shape));
  }
  const std::vector<std::int64_t> strides = dense_strides(x.shape);
  const std::int64_t along = strides[sequence], across = strides[batch], width = storage_bytes(x.storage);
  const std::int64_t count = x.count;
  const Slot in = x.slot, by = lengths.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t line = 0; line < lines; ++line) {
      const std::int64_t length = f.i32(by)[line];
      if (length < 0 || length > size) {
        throw ModelError("a length of " + std::to_string(length) + " in a dimension of " + std::to_string(size));
      }
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t length = f.i32(by)[i / across % lines], at = i / along % size;
      const std::int64_t source = at < length ? i + (length - 1 - 2 * at) * along : i;
      std::memcpy(f.bytes(out) + i * width, f.bytes(in) + source * width, static_cast<std::size_t>(width));
    }
  });
}

}  // namespace

OpTable batch_ops() {
  return {
      {"space_to_batch", space_to_batch}, {"batch_to_space", batch_to_space}, {"reverse_sequence", reverse_sequence}};
}

}  // namespace coremlsim::mil
