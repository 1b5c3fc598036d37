// scatter, scatter_along_axis, scatter_nd: a copy of `data` with updates put or combined in order.
#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <type_traits>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

enum class Mode : std::uint8_t { kUpdate, kAdd, kSub, kMul, kDiv, kMax, kMin };

Mode read_mode(Call& c, const char* fallback) {
  static constexpr std::pair<const char*, Mode> kModes[] = {
      {"update", Mode::kUpdate}, {"add", Mode::kAdd}, {"sub", Mode::kSub}, {"mul", Mode::kMul},
      {"div", Mode::kDiv},       {"max", Mode::kMax}, {"min", Mode::kMin}};
  const std::string mode = c.text("mode", fallback);
  for (const auto& [name, value] : kModes) {
    if (mode == name) return value;
  }
  c.fail("unknown mode '" + mode + "'");
}

template <class T>
T combine(Mode mode, T old, T update) {
  switch (mode) {
    case Mode::kUpdate:
      return update;
    case Mode::kAdd:
      return old + update;
    case Mode::kSub:
      return old - update;
    case Mode::kMul:
      return old * update;
    case Mode::kDiv:
      return update == T(0) && std::is_integral_v<T> ? T(0) : old / update;
    case Mode::kMax:
      return std::max(old, update);
    case Mode::kMin:
      return std::min(old, update);
  }
  return update;
}

std::int64_t wrapped(std::int64_t index, std::int64_t size) {
  const std::int64_t at = index < 0 ? index + size : index;
  if (at < 0 || at >= size) {
    throw ModelError("index " + std::to_string(index) + " is out of range for a dimension of " + std::to_string(size));
  }
  return at;
}

// Where update element i goes, for a step that has the indices.
using Target = std::function<std::int64_t(const std::int32_t* indices, std::int64_t i)>;

void scatter_step(Call& c, const Info& data, const Info& indices, const Info& updates, Mode mode, Target target) {
  if (indices.storage != Storage::kInt || updates.storage != data.storage || data.storage == Storage::kBool) {
    c.fail("data, indices or updates have the wrong type");
  }
  const std::int64_t count = updates.count, bytes = data.bytes();
  const bool ints = data.storage == Storage::kInt;
  const Slot from = data.slot, is = indices.slot, us = updates.slot, out = c.out_over(data, data.shape);
  c.run([=, target = std::move(target)](Frame& f) {
    if (f.bytes(out) != f.bytes(from)) std::memcpy(f.bytes(out), f.bytes(from), static_cast<std::size_t>(bytes));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = target(f.i32(is), i);
      if (ints) {
        f.i32(out)[at] = static_cast<std::int32_t>(combine<std::int64_t>(mode, f.i32(out)[at], f.i32(us)[i]));
      } else {
        f.f32(out)[at] = combine<float>(mode, f.f32(out)[at], f.f32(us)[i]);
      }
    }
  });
}

std::int64_t product(const Shape& shape, std::size_t begin, std::size_t end) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(begin),
                         shape.begin() + static_cast<std::ptrdiff_t>(end), std::int64_t{1}, std::multiplies<>());
}

void scatter(Call& c) {
  const Info& data = c.in("data");
  const Info& indices = c.in("indices");
  const Info& updates = c.in("updates");
  const auto axis = static_cast<std::size_t>(c.axis("axis", data.rank(), 0));
  Shape expected(data.shape.begin(), data.shape.begin() + static_cast<std::ptrdiff_t>(axis));
  expected.insert(expected.end(), indices.shape.begin(), indices.shape.end());
  expected.insert(expected.end(), data.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, data.shape.end());
  if (updates.shape != expected) c.fail("updates " + describe(updates.shape) + " should be " + describe(expected));
  const std::int64_t size = data.shape[axis], inner = product(data.shape, axis + 1, data.shape.size()),
                     picks = indices.count;
  scatter_step(c, data, indices, updates, read_mode(c, "add"), [=](const std::int32_t* index, std::int64_t i) {
    const std::int64_t row = i / inner;
    return (row / picks * size + wrapped(index[row % picks], size)) * inner + i % inner;
  });
}

void scatter_along_axis(Call& c) {
  const Info& data = c.in("data");
  const Info& indices = c.in("indices");
  const Info& updates = c.in("updates");
  const auto axis = static_cast<std::size_t>(c.axis("axis", data.rank(), 0));
  Shape expected = data.shape;
  if (indices.rank() == data.rank()) expected[axis] = indices.shape[axis];
  if (indices.shape != expected || updates.shape != expected)
    c.fail("indices or updates do not fit data " + describe(data.shape));
  const std::int64_t size = data.shape[axis], picks = indices.shape[axis],
                     inner = product(data.shape, axis + 1, data.shape.size());
  scatter_step(c, data, indices, updates, read_mode(c, "add"), [=](const std::int32_t* index, std::int64_t i) {
    return (i / (picks * inner) * size + wrapped(index[i], size)) * inner + i % inner;
  });
}

void scatter_nd(Call& c) {
  const Info& data = c.in("data");
  const Info& indices = c.in("indices");
  const Info& updates = c.in("updates");
  if (indices.rank() < 1 || indices.shape.back() < 1 || indices.shape.back() > data.rank())
    c.fail("indices " + describe(indices.shape) + " do not fit");
  const auto depth = static_cast<std::size_t>(indices.shape.back());
  Shape expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.insert(expected.end(), data.shape.begin() + static_cast<std::ptrdiff_t>(depth), data.shape.end());
  if (updates.shape != expected) c.fail("updates " + describe(updates.shape) + " should be " + describe(expected));
  const std::int64_t inner = product(data.shape, depth, data.shape.size());
  const Shape sizes(data.shape.begin(), data.shape.begin() + static_cast<std::ptrdiff_t>(depth));
  scatter_step(c, data, indices, updates, read_mode(c, "add"), [=](const std::int32_t* index, std::int64_t i) {
    const std::int32_t* row = index + i / inner * static_cast<std::int64_t>(depth);
    std::int64_t at = 0;
    for (std::size_t d = 0; d < depth; ++d) at = at * sizes[d] + wrapped(row[d], sizes[d]);
    return at * inner + i % inner;
  });
}

}  // namespace

OpTable scatter_ops() {
  return {{"scatter", scatter}, {"scatter_along_axis", scatter_along_axis}, {"scatter_nd", scatter_nd}};
}

}  // namespace coremlsim::mil
