#include "mil/ops/pad.h"

#include <algorithm>
#include <cstring>

#include "mil/ops/broadcast.h"
#include "mil/ops/copy_nd.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kMaxMappedSize = 1 << 24;

struct Padding {
  std::vector<std::int64_t> before, after;  // per dimension
};

Padding read_padding(Call& c, const Info& x) {
  const std::vector<std::int64_t> pad = c.ints("pad");
  if (pad.size() % 2 != 0 || static_cast<std::int64_t>(pad.size()) > 2 * x.rank()) {
    c.fail("pad has " + std::to_string(pad.size()) + " entries for rank " + std::to_string(x.rank()));
  }
  Padding padding{std::vector<std::int64_t>(x.shape.size(), 0), std::vector<std::int64_t>(x.shape.size(), 0)};
  const std::size_t first = x.shape.size() - pad.size() / 2;  // pads belong to the last dimensions
  for (std::size_t i = 0; i < pad.size(); ++i) {
    if (pad[i] < 0 || pad[i] > kMaxElements) c.fail("pad of " + std::to_string(pad[i]));
    (i % 2 ? padding.after : padding.before)[first + i / 2] = pad[i];
  }
  return padding;
}

// Only the borders are filled: one slab before and one after per dimension.
void pad_constant(Call& c, const Info& x, const Padding& padding, const Shape& shape) {
  const std::vector<std::int64_t> strides = dense_strides(shape), zero(shape.size(), 0);
  const std::int64_t width = storage_bytes(x.storage);
  std::vector<CopyPlan> borders;
  std::int64_t inside = 0;
  Shape slab = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    for (const bool after : {false, true}) {
      const std::int64_t size = after ? padding.after[d] : padding.before[d];
      if (size == 0) continue;
      slab[d] = size;
      borders.emplace_back(slab, zero, 0, strides, inside + (after ? shape[d] - size : 0) * strides[d], width);
    }
    slab[d] = x.shape[d];
    inside += padding.before[d] * strides[d];
  }
  const CopyPlan plan(x.shape, dense_strides(x.shape), 0, strides, inside, width);
  const Info* value = c.maybe("constant_val");
  if (value && value->count != 1) c.fail("constant_val must be one number");
  if (value && value->storage != x.storage) c.fail("constant_val has another type than x");
  const Slot in = x.slot, vs = value ? value->slot : kNoSlot, out = c.out(shape);
  c.run([=](Frame& f) {
    const std::uint32_t none = 0;
    const void* fill = vs == kNoSlot ? &none : f.get<void>(vs);
    plan.run(f.pool, f.get<void>(in), f.get<void>(out));
    for (const CopyPlan& border : borders) border.run(f.pool, fill, f.get<void>(out));
  });
}

// Every output index maps to an input index, dimension by dimension.
void pad_mapped(Call& c, const Info& x, const Padding& padding, const Shape& shape, bool reflect) {
  std::vector<std::vector<std::int64_t>> offsets;
  const std::vector<std::int64_t> strides = dense_strides(x.shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t size = x.shape[d];
    if (reflect && (padding.before[d] >= size || padding.after[d] >= size))
      c.fail("reflection is longer than the input");
    if (size == 0 && shape[d] > 0) c.fail("cannot pad an empty dimension");
    if (shape[d] > kMaxMappedSize) c.fail("cannot reflect or replicate a dimension of " + std::to_string(shape[d]));
    std::vector<std::int64_t>& map = offsets.emplace_back();
    for (std::int64_t i = 0; i < shape[d]; ++i) {
      std::int64_t at = i - padding.before[d];
      if (reflect) {
        at = at < 0 ? -at : at >= size ? 2 * size - 2 - at : at;
      } else {
        at = std::clamp<std::int64_t>(at, 0, size - 1);
      }
      map.push_back(at * strides[d]);
    }
  }
  const std::int64_t width = storage_bytes(x.storage), rank = x.rank();
  const Slot in = x.slot, out = c.out(shape);
  const std::int64_t total = element_count(shape, "pad");
  c.run([=](Frame& f) {
    std::vector<std::size_t> index(static_cast<std::size_t>(rank), 0);
    for (std::int64_t i = 0; i < total; ++i) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < index.size(); ++d) at += offsets[d][index[d]];
      std::memcpy(f.bytes(out) + i * width, f.bytes(in) + at * width, static_cast<std::size_t>(width));
      for (std::size_t d = index.size(); d-- > 0;) {
        if (++index[d] < offsets[d].size()) break;
        index[d] = 0;
      }
    }
  });
}

}  // namespace

void pad(Call& c) {
  const Info& x = c.in("x");
  const Padding padding = read_padding(c, x);
  const std::string mode = c.text("mode", "constant");
  Shape shape = x.shape;
  for (std::size_t d = 0; d < shape.size(); ++d) shape[d] += padding.before[d] + padding.after[d];
  (void)element_count(shape, "pad");
  if (mode == "constant") return pad_constant(c, x, padding, shape);
  if (mode == "reflect" || mode == "replicate") return pad_mapped(c, x, padding, shape, mode == "reflect");
  c.fail("unknown mode '" + mode + "'");
}

}  // namespace coremlsim::mil
