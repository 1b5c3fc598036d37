// Tensors made from numbers: fill, range, one_hot, masks, non_zero, quantize.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

void fill_step(Call& c, Shape shape) {
  const Info* value = c.maybe("value");
  const Storage storage = storage_of(c.declared().dtype);
  if (value && (value->count != 1 || value->storage != storage))
    c.fail("value must be one element of the result's type");
  const std::int64_t count = element_count(shape, "fill"), width = storage_bytes(storage);
  const Slot from = value ? value->slot : kNoSlot, out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    const std::uint32_t none = 0;
    const void* element = from == kNoSlot ? &none : f.get<void>(from);
    if (width == 4) {
      std::uint32_t bits;
      std::memcpy(&bits, element, 4);
      std::fill_n(f.get<std::uint32_t>(out), count, bits);
    } else {
      std::fill_n(f.bytes(out), count, *static_cast<const std::uint8_t*>(element));
    }
  });
}

void fill(Call& c) { fill_step(c, c.ints("shape")); }
void fill_like(Call& c) { fill_step(c, c.in("ref_tensor").shape); }

// The length depends on the values.
void range_1d(Call& c) {
  const Info& start = c.in("start");
  const Info& end = c.in("end");
  const Info& step = c.in("step");
  if (start.storage != end.storage || end.storage != step.storage || start.storage == Storage::kBool)
    c.fail("needs three numbers of one type");
  const bool ints = start.storage == Storage::kInt;
  const auto number = [&](std::string_view name) {
    return ints ? static_cast<double>(c.integer(name)) : static_cast<double>(c.number(name));
  };
  const double first = number("start"), last = number("end"), by = number("step");
  const double length = by == 0.0 ? -1.0 : std::ceil((last - first) / by);
  if (by == 0.0 || !(length < static_cast<double>(kMaxElements))) c.fail("an endless range");
  const auto count = static_cast<std::int64_t>(std::max(length, 0.0));
  const Slot out = c.out({count});
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = first + static_cast<double>(i) * by;
      if (ints) {
        f.i32(out)[i] = static_cast<std::int32_t>(value);
      } else {
        f.f32(out)[i] = static_cast<float>(value);
      }
    }
  });
}

void one_hot(Call& c) {
  const Info& indices = c.in("indices");
  const Info& on = c.in("on_value");
  const Info& off = c.in("off_value");
  const std::int64_t size = c.integer("one_hot_vector_size"), axis = c.axis("axis", indices.rank() + 1, -1);
  if (indices.storage != Storage::kInt || size < 1) c.fail("needs integer indices and a positive size");
  const Storage storage = storage_of(c.declared().dtype);
  if (on.count != 1 || off.count != 1 || on.storage != off.storage || on.storage != storage)
    c.fail("on_value and off_value do not fit");
  Shape shape = indices.shape;
  shape.insert(shape.begin() + axis, size);
  const std::int64_t inner = dense_strides(shape)[static_cast<std::size_t>(axis)],
                     count = element_count(shape, "one_hot");
  const std::int64_t width = storage_bytes(storage);
  const Slot is = indices.slot, on_slot = on.slot, off_slot = off.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t outer = i / (size * inner), k = i / inner % size, at = outer * inner + i % inner;
      std::int64_t index = f.i32(is)[at];
      if (index < 0) index += size;
      std::memcpy(f.bytes(out) + i * width, f.bytes(index == k ? on_slot : off_slot), static_cast<std::size_t>(width));
    }
  });
}

// Keeps the diagonals from -lower to upper of the last two dimensions; a negative bound keeps that whole side.
void band_part(Call& c) {
  const Info& x = c.in("x");
  if (x.rank() < 2) c.fail("needs a rank of at least 2");
  const std::int64_t lower = c.integer("lower", -1), upper = c.integer("upper", -1);
  const std::int64_t rows = x.shape[x.shape.size() - 2], columns = x.shape.back(), width = storage_bytes(x.storage),
                     count = x.count;
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = i / columns % rows, column = i % columns;
      const bool keep = (lower < 0 || row - column <= lower) && (upper < 0 || column - row <= upper);
      if (keep) {
        std::memcpy(f.bytes(out) + i * width, f.bytes(in) + i * width, static_cast<std::size_t>(width));
      } else {
        std::memset(f.bytes(out) + i * width, 0, static_cast<std::size_t>(width));
      }
    }
  });
}

// [number of non-zero elements, rank]: the values must be known.
void non_zero(Call& c) {
  const Info& x = c.in_known("x");
  if (!x.data) throw NeedsValue{};
  const auto is_set = [storage = x.storage, data = x.data](std::int64_t i) {
    if (storage == Storage::kFloat) return static_cast<const float*>(data)[i] != 0.0F;
    if (storage == Storage::kInt) return static_cast<const std::int32_t*>(data)[i] != 0;
    return static_cast<const std::uint8_t*>(data)[i] != 0;
  };
  std::vector<std::int32_t> places;
  std::int64_t found = 0;
  for (std::int64_t i = 0; i < x.count; ++i) {
    if (!is_set(i)) continue;
    ++found;
    std::int64_t rest = i;
    std::vector<std::int32_t> index(x.shape.size());
    for (std::size_t d = index.size(); d-- > 0;) {
      index[d] = static_cast<std::int32_t>(rest % x.shape[d]);
      rest /= x.shape[d];
    }
    places.insert(places.end(), index.begin(), index.end());
  }
  const Slot out = c.out({found, x.rank()});
  c.run([=](Frame& f) { std::copy(places.begin(), places.end(), f.i32(out)); });
}

struct Affine {
  Slot scale, zero;
  std::int64_t channels, inner;
  std::size_t at(std::int64_t i) const { return static_cast<std::size_t>(channels == 1 ? 0 : i / inner % channels); }
};

Affine read_affine(Call& c, const Info& x) {
  const Info& scale = c.in("scale");
  const Info* zero = c.maybe("zero_point");
  Affine affine{scale.slot, zero ? zero->slot : kNoSlot, scale.count, 1};
  if (scale.storage != Storage::kFloat || (zero && (zero->count != scale.count || zero->storage != Storage::kInt))) {
    c.fail("scale and zero_point do not fit");
  }
  if (scale.count != 1) {
    const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank()));
    if (x.shape[axis] != scale.count) c.fail("needs one scale per channel");
    affine.inner = dense_strides(x.shape)[axis];
  }
  return affine;
}

void quantize(Call& c) {
  const Info& x = c.in("input");
  if (x.storage != Storage::kFloat) c.fail("needs a floating point tensor");
  const Affine a = read_affine(c, x);
  const bool is_signed = c.declared().dtype == MilType::kInt8;
  if (!is_signed && c.declared().dtype != MilType::kUInt8) c.fail("gives int8 or uint8");
  const float low = is_signed ? -128.0F : 0.0F, high = is_signed ? 127.0F : 255.0F;
  const std::int64_t count = x.count;
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for_elements(f.pool, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const float zero = a.zero == kNoSlot ? 0.0F : static_cast<float>(f.i32(a.zero)[a.at(i)]);
        const float value = std::nearbyint(f.f32(in)[i] / f.f32(a.scale)[a.at(i)]) + zero;
        f.i32(out)[i] = static_cast<std::int32_t>(std::fmin(std::fmax(value, low), high));
      }
    });
  });
}

void dequantize(Call& c) {
  const Info& x = c.in("input");
  if (x.storage != Storage::kInt) c.fail("needs an integer tensor");
  const Affine a = read_affine(c, x);
  const std::int64_t count = x.count;
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for_elements(f.pool, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int32_t zero = a.zero == kNoSlot ? 0 : f.i32(a.zero)[a.at(i)];
        f.f32(out)[i] = f.f32(a.scale)[a.at(i)] * static_cast<float>(f.i32(in)[i] - zero);
      }
    });
  });
}

}  // namespace

OpTable generate_ops() {
  return {
      {"fill", fill},           {"fill_like", fill_like}, {"range_1d", range_1d}, {"one_hot", one_hot},
      {"band_part", band_part}, {"non_zero", non_zero},   {"quantize", quantize}, {"dequantize", dequantize},
  };
}

}  // namespace coremlsim::mil
