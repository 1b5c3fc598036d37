// Ops that only change a shape, and the plain movers: transpose, concat, split, stack, tile, reverse, windows.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/pad.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

void copy_step(Call& c, const Info& x, CopyPlan plan, Slot out) {
  const Slot in = x.slot;
  c.run([=](Frame& f) { plan.run(f.pool, f.get<void>(in), f.get<void>(out)); });
}

void identity(Call& c) {
  const Info& x = c.in("x");
  c.alias(x, x.shape);
}

// -1 takes what is left; 0 keeps the input's dimension, counted from the right as the converter counts it.
void reshape(Call& c) {
  const Info& x = c.in("x");
  Shape shape = c.ints("shape");
  std::int64_t known = 1;
  std::ptrdiff_t free = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0 && x.count != 0) {
      const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(i) + x.rank() - static_cast<std::ptrdiff_t>(shape.size());
      if (at < 0) c.fail("shape has a 0 beyond the input's rank");
      shape[i] = x.shape[static_cast<std::size_t>(at)];
    }
    if (shape[i] == -1 && free < 0) {
      free = static_cast<std::ptrdiff_t>(i);
    } else if (shape[i] < 0 || __builtin_mul_overflow(known, shape[i], &known)) {
      c.fail("cannot reshape " + describe(x.shape) + " to " + describe(shape));
    }
  }
  if (free >= 0) shape[static_cast<std::size_t>(free)] = known ? x.count / known : 0;
  if (element_count(shape, "reshape") != x.count)
    c.fail("cannot reshape " + describe(x.shape) + " to " + describe(shape));
  c.alias(x, std::move(shape));
}

// Parts of the shapes of other tensors, one after the other.
void reshape_like(Call& c) {
  const Info& x = c.in("x");
  const std::vector<const Info*> references = c.list("ref_tensors"), begins = c.list("begins"), ends = c.list("ends");
  const std::vector<const Info*> open_ends = c.list("end_masks");
  const std::size_t count = references.size();
  if (begins.size() != count || ends.size() != count || open_ends.size() != count) c.fail("arguments differ in length");
  Shape shape;
  for (std::size_t i = 0; i < count; ++i) {
    const Shape& from = references[i]->shape;
    if (!begins[i]->data || !ends[i]->data || !open_ends[i]->data) throw NeedsValue{};
    if (begins[i]->storage != Storage::kInt || ends[i]->storage != Storage::kInt ||
        open_ends[i]->storage != Storage::kBool || begins[i]->count != 1 || ends[i]->count != 1 ||
        open_ends[i]->count != 1) {
      c.fail("begins, ends and end_masks must be single numbers");
    }
    const auto rank = static_cast<std::int64_t>(from.size());
    std::int64_t first = *static_cast<const std::int32_t*>(begins[i]->data);
    std::int64_t last = *static_cast<const std::int32_t*>(ends[i]->data);
    if (first < 0) first += rank;
    if (last < 0) last += rank;
    if (*static_cast<const std::uint8_t*>(open_ends[i]->data)) last = rank;
    if (first < 0 || last < first || last > rank) c.fail("begin and end do not fit rank " + std::to_string(rank));
    shape.insert(shape.end(), from.begin() + first, from.begin() + last);
  }
  if (element_count(shape, "reshape_like") != x.count)
    c.fail("cannot reshape " + describe(x.shape) + " to " + describe(shape));
  c.alias(x, std::move(shape));
}

void expand_dims(Call& c) {
  const Info& x = c.in("x");
  std::vector<std::int64_t> axes = c.ints("axes");
  const std::int64_t rank = x.rank() + static_cast<std::int64_t>(axes.size());
  Shape shape(static_cast<std::size_t>(std::min(rank, kMaxRank + 1)), -1);
  if (rank > kMaxRank) c.fail("the result's rank is " + std::to_string(rank));
  for (std::int64_t& axis : axes) {
    const std::int64_t at = axis < 0 ? axis + rank : axis;
    if (at < 0 || at >= rank || shape[static_cast<std::size_t>(at)] == 1)
      c.fail("axes do not fit rank " + std::to_string(rank));
    shape[static_cast<std::size_t>(at)] = 1;
  }
  auto next = x.shape.begin();
  for (std::int64_t& d : shape) {
    if (d < 0) d = *next++;
  }
  c.alias(x, std::move(shape));
}

void squeeze(Call& c) {
  const Info& x = c.in("x");
  const bool all = !c.has("axes");
  const std::vector<std::int64_t> axes = c.axes("axes", x.rank());
  Shape shape;
  for (std::int64_t d = 0; d < x.rank(); ++d) {
    const std::int64_t size = x.shape[static_cast<std::size_t>(d)];
    const bool named = std::find(axes.begin(), axes.end(), d) != axes.end();
    if (named && size == 1) continue;
    if (named && !all) c.fail("axis " + std::to_string(d) + " of " + describe(x.shape) + " is not 1");
    shape.push_back(size);
  }
  c.alias(x, std::move(shape));
}

void flatten2d(Call& c) {
  const Info& x = c.in("x");
  const std::int64_t given = c.integer("axis", 1);
  const std::int64_t axis = given < 0 ? given + x.rank() : given;
  if (axis < 0 || axis > x.rank()) c.fail("axis does not fit");
  std::int64_t left = 1, right = 1;
  for (std::int64_t d = 0; d < x.rank(); ++d) (d < axis ? left : right) *= x.shape[static_cast<std::size_t>(d)];
  c.alias(x, {left, right});
}

void shape_of(Call& c) {
  const Info& x = c.in("x");
  const Shape shape = x.shape;
  const Slot out = c.out({static_cast<std::int64_t>(shape.size())});
  if (c.declared().dtype == MilType::kFloat16 || storage_of(c.declared().dtype) != Storage::kInt)
    c.fail("must give integers");
  c.known([=](Frame& f) {
    for (std::size_t i = 0; i < shape.size(); ++i) f.i32(out)[i] = static_cast<std::int32_t>(shape[i]);
  });
}

void transpose(Call& c) {
  const Info& x = c.in("x");
  std::vector<std::int64_t> perm = c.ints("perm");
  if (static_cast<std::int64_t>(perm.size()) != x.rank())
    c.fail("perm has " + std::to_string(perm.size()) + " entries");
  std::vector<bool> seen(perm.size(), false);
  const std::vector<std::int64_t> own = dense_strides(x.shape);
  Shape shape;
  std::vector<std::int64_t> strides;
  std::int64_t previous = -1;
  bool moves = false;  // dimensions of 1 may wander without a copy
  for (std::int64_t& p : perm) {
    if (p < 0) p += x.rank();
    if (p < 0 || p >= x.rank() || seen[static_cast<std::size_t>(p)]) c.fail("perm is not a permutation");
    seen[static_cast<std::size_t>(p)] = true;
    shape.push_back(x.shape[static_cast<std::size_t>(p)]);
    strides.push_back(own[static_cast<std::size_t>(p)]);
    if (shape.back() != 1) {
      moves = moves || p < previous;
      previous = p;
    }
  }
  if (!moves) return c.alias(x, std::move(shape));
  const CopyPlan plan(shape, strides, 0, dense_strides(shape), 0, storage_bytes(x.storage));
  copy_step(c, x, plan, c.out(shape));
}

void concat(Call& c) {
  const std::vector<const Info*> values = c.list("values");
  if (values.empty()) c.fail("nothing to concatenate");
  // Scalars become the elements of a vector, whatever the axis.
  const bool scalars = values.front()->rank() == 0;
  Info first = *values.front();
  if (scalars) first.shape = {1};
  const std::int64_t axis = scalars ? 0 : c.axis("axis", first.rank());
  const bool interleave = c.flag("interleave", false);
  Shape shape = first.shape;
  shape[static_cast<std::size_t>(axis)] = 0;
  std::vector<Shape> shapes;
  for (const Info* value : values) {
    Shape own = scalars && value->rank() == 0 ? Shape{1} : value->shape;
    Shape expected = first.shape;
    if (own.size() == expected.size()) expected[static_cast<std::size_t>(axis)] = own[static_cast<std::size_t>(axis)];
    if (own != expected || value->storage != first.storage) {
      c.fail(describe(value->shape) + " does not fit " + describe(values.front()->shape) + " along axis " +
             std::to_string(axis));
    }
    if (interleave && own != first.shape) c.fail("interleaving needs equal shapes");
    shape[static_cast<std::size_t>(axis)] += own[static_cast<std::size_t>(axis)];
    shapes.push_back(std::move(own));
  }
  std::vector<std::pair<Slot, CopyPlan>> parts;
  std::vector<std::int64_t> strides = dense_strides(shape);
  const std::int64_t along = strides[static_cast<std::size_t>(axis)];
  if (interleave) strides[static_cast<std::size_t>(axis)] *= static_cast<std::int64_t>(values.size());
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    parts.emplace_back(values[i]->slot, CopyPlan(shapes[i], dense_strides(shapes[i]), 0, strides, offset,
                                                 storage_bytes(values[i]->storage)));
    offset += along * (interleave ? 1 : shapes[i][static_cast<std::size_t>(axis)]);
  }
  const Slot out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for (const auto& [slot, plan] : parts) plan.run(f.pool, f.get<void>(slot), f.get<void>(out));
  });
}

void stack(Call& c) {
  const std::vector<const Info*> values = c.list("values");
  if (values.empty()) c.fail("nothing to stack");
  const Info& first = *values.front();
  const std::int64_t axis = c.axis("axis", first.rank() + 1);
  Shape shape = first.shape;
  shape.insert(shape.begin() + axis, static_cast<std::int64_t>(values.size()));
  std::vector<std::int64_t> strides = dense_strides(shape);
  const std::int64_t along = strides[static_cast<std::size_t>(axis)];
  strides.erase(strides.begin() + axis);
  std::vector<std::pair<Slot, CopyPlan>> parts;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]->shape != first.shape || values[i]->storage != first.storage) c.fail("needs equal shapes and types");
    parts.emplace_back(values[i]->slot, CopyPlan(first.shape, dense_strides(first.shape), 0, strides,
                                                 along * static_cast<std::int64_t>(i), storage_bytes(first.storage)));
  }
  const Slot out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for (const auto& [slot, plan] : parts) plan.run(f.pool, f.get<void>(slot), f.get<void>(out));
  });
}

void split(Call& c) {
  const Info& x = c.in("x");
  const std::int64_t axis = c.axis("axis", x.rank());
  const std::int64_t size = x.shape[static_cast<std::size_t>(axis)];
  const auto count = static_cast<std::int64_t>(c.output_count());
  std::vector<std::int64_t> sizes;
  if (c.has("split_sizes")) {
    sizes = c.ints("split_sizes");
  } else {
    const std::int64_t splits = c.integer("num_splits");
    if (splits <= 0 || size % splits != 0)
      c.fail("cannot split " + std::to_string(size) + " into " + std::to_string(splits));
    if (splits == count) sizes.assign(static_cast<std::size_t>(splits), size / splits);
  }
  if (static_cast<std::int64_t>(sizes.size()) != count ||
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != size ||
      std::any_of(sizes.begin(), sizes.end(), [](std::int64_t s) { return s < 0; })) {
    c.fail("split sizes do not fit the outputs or dimension " + std::to_string(size));
  }
  const std::vector<std::int64_t> strides = dense_strides(x.shape);
  std::vector<std::pair<Slot, CopyPlan>> parts;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    Shape shape = x.shape;
    shape[static_cast<std::size_t>(axis)] = sizes[i];
    const CopyPlan plan(shape, strides, offset, dense_strides(shape), 0, storage_bytes(x.storage));
    offset += sizes[i] * strides[static_cast<std::size_t>(axis)];
    parts.emplace_back(c.out(std::move(shape), i), plan);
  }
  const Slot in = x.slot;
  c.run([=](Frame& f) {
    for (const auto& [slot, plan] : parts) plan.run(f.pool, f.get<void>(in), f.get<void>(slot));
  });
}

void tile(Call& c) {
  const Info& x = c.in("x");
  const std::vector<std::int64_t> reps = c.ints("reps");
  if (static_cast<std::int64_t>(reps.size()) != x.rank()) c.fail("reps does not fit rank " + std::to_string(x.rank()));
  // Each dimension becomes (repetition, size); the repetition has stride 0.
  const std::vector<std::int64_t> own = dense_strides(x.shape);
  Shape shape, split_shape;
  std::vector<std::int64_t> in_strides;
  for (std::size_t d = 0; d < reps.size(); ++d) {
    std::int64_t size = 0;
    if (reps[d] < 1 || __builtin_mul_overflow(reps[d], x.shape[d], &size)) c.fail("reps of " + std::to_string(reps[d]));
    shape.push_back(size);
    split_shape.insert(split_shape.end(), {reps[d], x.shape[d]});
    in_strides.insert(in_strides.end(), {0, own[d]});
  }
  (void)element_count(shape, "tile");
  const CopyPlan plan(split_shape, in_strides, 0, dense_strides(split_shape), 0, storage_bytes(x.storage));
  copy_step(c, x, plan, c.out(std::move(shape)));
}

void reverse(Call& c) {
  const Info& x = c.in("x");
  const std::vector<std::int64_t> axes = c.axes("axes", x.rank());
  std::vector<std::int64_t> strides = dense_strides(x.shape);
  std::int64_t offset = 0;
  for (const std::int64_t axis : axes) {
    std::int64_t& stride = strides[static_cast<std::size_t>(axis)];
    offset += (x.shape[static_cast<std::size_t>(axis)] - 1) * stride;
    stride = -stride;
  }
  const CopyPlan plan(x.shape, strides, offset, dense_strides(x.shape), 0, storage_bytes(x.storage));
  copy_step(c, x, plan, c.out(x.shape));
}

// [..., n, ...] becomes [..., windows, size, ...].
void sliding_windows(Call& c) {
  const Info& x = c.in("x");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank()));
  const std::int64_t size = c.integer("size"), stride = c.integer("stride", 1), length = x.shape[axis];
  if (size < 1 || stride < 1 || size > length)
    c.fail("windows of " + std::to_string(size) + " over " + std::to_string(length));
  Shape shape = x.shape;
  std::vector<std::int64_t> strides = dense_strides(x.shape);
  shape[axis] = (length - size) / stride + 1;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1, size);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(axis) + 1, strides[axis]);
  strides[axis] *= stride;
  const CopyPlan plan(shape, strides, 0, dense_strides(shape), 0, storage_bytes(x.storage));
  copy_step(c, x, plan, c.out(std::move(shape)));
}

}  // namespace

OpTable shape_ops() {
  return {
      {"identity", identity},
      {"reshape", reshape},
      {"reshape_like", reshape_like},
      {"sliding_windows", sliding_windows},
      {"expand_dims", expand_dims},
      {"squeeze", squeeze},
      {"flatten2d", flatten2d},
      {"shape", shape_of},
      {"transpose", transpose},
      {"concat", concat},
      {"stack", stack},
      {"pad", pad},
      {"split", split},
      {"tile", tile},
      {"reverse", reverse},
  };
}

}  // namespace coremlsim::mil
