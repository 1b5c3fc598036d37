// gather and its kin, slices and slice_update. A begin that is only known when the program runs is fine as long as the
// declared shape says how long the slice is.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>());
}

std::int64_t checked_index(std::int64_t index, std::int64_t size) {
  const std::int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) {
    throw ModelError("index " + std::to_string(index) + " is out of range for a dimension of " + std::to_string(size));
  }
  return at;
}

// Copies elements, widening fp16 constants.
void copy_elements(Storage storage, const std::uint8_t* in, std::int64_t from, std::uint8_t* out, std::int64_t to,
                   std::int64_t count) {
  if (storage == Storage::kHalf) {
    kernels().f16_to_f32(reinterpret_cast<const std::uint16_t*>(in) + from, reinterpret_cast<float*>(out) + to, count);
    return;
  }
  const std::int64_t width = storage_bytes(storage);
  std::memcpy(out + to * width, in + from * width, static_cast<std::size_t>(count * width));
}

void gather(Call& c) {
  const Info& x = c.weight("x");
  const Info& indices = c.in("indices");
  if (indices.storage != Storage::kInt) c.fail("indices must be integers");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), 0));
  const auto batch = static_cast<std::size_t>(c.integer("batch_dims", 0));
  if (batch > axis || batch > indices.shape.size() ||
      !std::equal(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(batch), indices.shape.begin())) {
    c.fail("batch_dims of " + std::to_string(batch) + " does not fit");
  }
  Shape shape(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  shape.insert(shape.end(), indices.shape.begin() + static_cast<std::ptrdiff_t>(batch), indices.shape.end());
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, x.shape.end());
  const std::int64_t batches = product(x.shape, 0, batch), middle = product(x.shape, batch, axis);
  const std::int64_t size = x.shape[axis], inner = product(x.shape, axis + 1, x.shape.size());
  const std::int64_t picks = product(indices.shape, batch, indices.shape.size());
  const Slot xs = x.slot, is = indices.slot;
  const Storage storage = x.storage;
  const Slot out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for_rows(f.pool, batches * middle * picks, inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const std::int64_t outer = row / picks, pick = row % picks;
        const std::int64_t at = checked_index(f.i32(is)[outer / middle * picks + pick], size);
        copy_elements(storage, f.bytes(xs), (outer * size + at) * inner, f.bytes(out), row * inner, inner);
      }
    });
  });
}

void gather_along_axis(Call& c) {
  const Info& x = c.in("x");
  const Info& indices = c.in("indices");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), 0));
  Shape expected = x.shape;
  if (indices.rank() == x.rank()) expected[axis] = indices.shape[axis];
  if (indices.shape != expected || indices.storage != Storage::kInt)
    c.fail("indices " + describe(indices.shape) + " do not fit x " + describe(x.shape));
  const std::int64_t size = x.shape[axis], picks = indices.shape[axis];
  const std::int64_t inner = product(x.shape, axis + 1, x.shape.size());
  const std::int64_t count = indices.count;
  const Slot xs = x.slot, is = indices.slot;
  const Storage storage = x.storage;
  const Slot out = c.out(indices.shape);
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = checked_index(f.i32(is)[i], size);
      const std::int64_t outer = i / (picks * inner), within = i % inner;
      copy_elements(storage, f.bytes(xs), (outer * size + at) * inner + within, f.bytes(out), i, 1);
    }
  });
}

void gather_nd(Call& c) {
  const Info& x = c.in("x");
  const Info& indices = c.in("indices");
  const auto batch = static_cast<std::size_t>(c.integer("batch_dims", 0));
  if (indices.storage != Storage::kInt || indices.rank() < 1 || batch >= indices.shape.size())
    c.fail("indices do not fit");
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  if (depth == 0 || batch + depth > x.shape.size() ||
      !std::equal(x.shape.begin(), x.shape.begin() + static_cast<std::ptrdiff_t>(batch), indices.shape.begin())) {
    c.fail("indices " + describe(indices.shape) + " do not fit x " + describe(x.shape));
  }
  Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), x.shape.begin() + static_cast<std::ptrdiff_t>(batch + depth), x.shape.end());
  const std::int64_t batches = product(x.shape, 0, batch), inner = product(x.shape, batch + depth, x.shape.size());
  const std::int64_t block = product(x.shape, batch, x.shape.size());
  const std::int64_t picks = product(indices.shape, batch, indices.shape.size() - 1);
  const Shape sizes(x.shape.begin() + static_cast<std::ptrdiff_t>(batch),
                    x.shape.begin() + static_cast<std::ptrdiff_t>(batch + depth));
  const Slot xs = x.slot, is = indices.slot;
  const Storage storage = x.storage;
  const Slot out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for (std::int64_t row = 0; row < batches * picks; ++row) {
      std::int64_t at = 0;
      for (std::size_t d = 0; d < depth; ++d) {
        at = at * sizes[d] +
             checked_index(f.i32(is)[row * static_cast<std::int64_t>(depth) + static_cast<std::int64_t>(d)], sizes[d]);
      }
      copy_elements(storage, f.bytes(xs), row / picks * block + at * inner, f.bytes(out), row * inner, inner);
    }
  });
}

// The region that begin, end, stride and the masks select; one entry per dimension of the sliced tensor.
struct Region {
  Shape begin, size, stride;
  std::vector<bool> squeezed;
  Slot begin_slot = kNoSlot;        // begin is read when the program runs
  std::vector<bool> begin_ignored;  // by begin_mask

  Shape shape() const {
    Shape result;
    for (std::size_t d = 0; d < size.size(); ++d) {
      if (!squeezed[d]) result.push_back(size[d]);
    }
    return result;
  }
  // Elements from the start of the tensor to the region's first one.
  std::int64_t offset(const Frame& f, const Shape& dims, const std::vector<std::int64_t>& strides) const {
    std::int64_t total = 0;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      std::int64_t first = begin[d];
      if (begin_slot != kNoSlot && !begin_ignored[d]) {
        first = f.i32(begin_slot)[d];
        if (first < 0) first += dims[d];
        const std::int64_t last = first + (size[d] - 1) * stride[d];
        if (size[d] > 0 && (first < 0 || first >= dims[d] || last < 0 || last >= dims[d])) {
          throw ModelError("a slice of " + std::to_string(size[d]) + " at " + std::to_string(first) +
                           " leaves a dimension of " + std::to_string(dims[d]));
        }
      }
      total += first * strides[d];
    }
    return total;
  }
};

std::vector<bool> mask(Call& c, std::string_view name, std::size_t rank) {
  std::vector<bool> bits(rank, false);
  if (!c.has(name)) return bits;
  const std::vector<std::int64_t> given = c.ints(name);
  if (given.size() != rank) c.fail(std::string(name) + " does not fit rank " + std::to_string(rank));
  for (std::size_t d = 0; d < rank; ++d) bits[d] = given[d] != 0;
  return bits;
}

// `declared` is the shape of the slice when the file says it (all dimensions >= 0), for a begin that is not known yet.
Region read_region(Call& c, const Shape& dims, const Shape& declared) {
  const std::size_t rank = dims.size();
  Region region;
  region.stride = c.ints_or("stride", Shape(rank, 1));
  region.begin_ignored = mask(c, "begin_mask", rank);
  const std::vector<bool> end_ignored = mask(c, "end_mask", rank);
  region.squeezed = mask(c, "squeeze_mask", rank);
  const Info& begin = c.in("begin");
  const Info& end = c.in("end");
  if (begin.storage != Storage::kInt || end.storage != Storage::kInt ||
      begin.count != static_cast<std::int64_t>(rank) || end.count != begin.count || region.stride.size() != rank) {
    c.fail("begin, end or stride do not fit rank " + std::to_string(rank));
  }
  const bool known = begin.data && end.data;
  if (!known && !is_static(declared)) throw NeedsValue{};
  region.begin.assign(rank, 0);
  region.size.assign(rank, 1);
  std::size_t next = 0;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = dims[d], longest = std::max<std::int64_t>(size, 1);
    if (region.stride[d] == 0) c.fail("a stride of 0");
    // A longer stride than the dimension reaches one element all the same.
    const std::int64_t stride = region.stride[d] = std::clamp(region.stride[d], -longest, longest);
    if (!known) {
      if (region.begin_ignored[d]) region.begin[d] = stride > 0 ? 0 : size - 1;
      if (region.squeezed[d]) continue;
      if (next >= declared.size()) c.fail("the declared shape does not fit");
      region.size[d] = declared[next++];
      if (region.size[d] > size || (region.size[d] - 1) * std::abs(stride) >= longest)
        c.fail("the declared slice does not fit");
      continue;
    }
    std::int64_t first = static_cast<const std::int32_t*>(begin.data)[d];
    std::int64_t last = static_cast<const std::int32_t*>(end.data)[d];
    if (first < 0) first += size;
    if (region.begin_ignored[d]) first = stride > 0 ? 0 : size - 1;
    if (region.squeezed[d]) {
      if (first < 0 || first >= size)
        c.fail("index " + std::to_string(first) + " is out of range for " + std::to_string(size));
      region.begin[d] = first;
      continue;
    }
    if (last < 0) last += size;
    if (end_ignored[d]) last = stride > 0 ? size : -1;
    first = stride > 0 ? std::clamp<std::int64_t>(first, 0, size) : std::clamp<std::int64_t>(first, -1, size - 1);
    last = stride > 0 ? std::clamp<std::int64_t>(last, 0, size) : std::clamp<std::int64_t>(last, -1, size - 1);
    const std::int64_t span = stride > 0 ? last - first : first - last, step = std::abs(stride);
    region.begin[d] = first;
    region.size[d] = span > 0 ? (span + step - 1) / step : 0;
  }
  if (!known) region.begin_slot = begin.slot;
  return region;
}

std::vector<std::int64_t> scaled(std::vector<std::int64_t> strides, const Shape& by) {
  for (std::size_t d = 0; d < strides.size(); ++d) strides[d] *= by[d];
  return strides;
}

void run_slice(Call& c, const Info& x, const Region& region, Shape shape) {
  const Shape dims = x.shape;
  const std::vector<std::int64_t> strides = dense_strides(dims);
  const CopyPlan plan(region.size, scaled(strides, region.stride), 0, dense_strides(region.size), 0,
                      storage_bytes(x.storage));
  const std::int64_t width = storage_bytes(x.storage);
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) { plan.run(f.pool, f.bytes(in) + region.offset(f, dims, strides) * width, f.get<void>(out)); });
}

void slice_by_index(Call& c) {
  const Info& x = c.in("x");
  const Region region = read_region(c, x.shape, c.declared().dims);
  Shape shape = region.shape();
  run_slice(c, x, region, std::move(shape));
}

void slice_by_size(Call& c) {
  const Info& x = c.in("x");
  const std::size_t rank = x.shape.size();
  const Info& begin = c.in("begin");
  Region region;
  region.stride.assign(rank, 1);
  region.squeezed.assign(rank, false);
  region.begin_ignored.assign(rank, false);
  region.begin.assign(rank, 0);
  region.size = c.ints("size");
  if (begin.storage != Storage::kInt || begin.count != static_cast<std::int64_t>(rank) || region.size.size() != rank) {
    c.fail("begin or size do not fit rank " + std::to_string(rank));
  }
  region.begin_slot = begin.slot;
  for (std::size_t d = 0; d < rank; ++d) {
    if (region.size[d] == -1) {  // to the end: needs begin
      if (!begin.data) throw NeedsValue{};
      const std::int64_t first = static_cast<const std::int32_t*>(begin.data)[d];
      region.size[d] = x.shape[d] - (first < 0 ? first + x.shape[d] : first);
    }
    if (region.size[d] < 0 || region.size[d] > x.shape[d]) c.fail("a size of " + std::to_string(region.size[d]));
  }
  run_slice(c, x, region, region.size);
}

void slice_update(Call& c) {
  const Info& x = c.in("x");
  const Info& update = c.in("update");
  if (x.storage != update.storage) c.fail("x and update have different types");
  const Region region = read_region(c, x.shape, update.shape);
  if (region.shape() != update.shape) {
    c.fail("update " + describe(update.shape) + " does not fit the region " + describe(region.shape()));
  }
  const Shape dims = x.shape;
  const std::vector<std::int64_t> strides = dense_strides(dims);
  const CopyPlan plan(region.size, dense_strides(region.size), 0, scaled(strides, region.stride), 0,
                      storage_bytes(x.storage));
  const std::int64_t width = storage_bytes(x.storage), bytes = x.bytes();
  const Slot in = x.slot, us = update.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    const std::int64_t offset = region.offset(f, dims, strides) * width;
    if (f.bytes(out) != f.bytes(in)) {
      for_elements(f.pool, bytes, [&](std::int64_t begin, std::int64_t end) {
        std::memcpy(f.bytes(out) + begin, f.bytes(in) + begin, static_cast<std::size_t>(end - begin));
      });
    }
    plan.run(f.pool, f.get<void>(us), f.bytes(out) + offset);
  });
}

}  // namespace

OpTable index_ops() {
  return {
      {"gather", gather},
      {"gather_along_axis", gather_along_axis},
      {"gather_nd", gather_nd},
      {"slice_by_index", slice_by_index},
      {"slice_by_size", slice_by_size},
      {"slice_update", slice_update},
  };
}

}  // namespace coremlsim::mil
