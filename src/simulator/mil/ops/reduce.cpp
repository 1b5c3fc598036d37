// Reductions over any axes, argmax and argmin, cumsum, argsort, topk.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

enum class Reduction : std::uint8_t { kMean, kSum, kMax, kMin, kProd, kSumSquare, kL1, kL2, kLogSum, kLogSumExp };

float reduce_row(Reduction how, const float* x, std::int64_t n) {
  switch (how) {
    case Reduction::kMean:
      return static_cast<float>(kernels().sum(x, n) / static_cast<double>(n));
    case Reduction::kSum:
      return static_cast<float>(kernels().sum(x, n));
    case Reduction::kSumSquare:
      return static_cast<float>(kernels().sum_of_squares(x, n));
    case Reduction::kL2:
      return static_cast<float>(std::sqrt(kernels().sum_of_squares(x, n)));
    case Reduction::kMax:
      return n ? *std::max_element(x, x + n) : -std::numeric_limits<float>::infinity();
    case Reduction::kMin:
      return n ? *std::min_element(x, x + n) : std::numeric_limits<float>::infinity();
    case Reduction::kProd:
      return static_cast<float>(std::accumulate(x, x + n, 1.0, std::multiplies<>()));
    case Reduction::kL1:
      return static_cast<float>(
          std::accumulate(x, x + n, 0.0, [](double t, float v) { return t + static_cast<double>(std::fabs(v)); }));
    case Reduction::kLogSum:
      return static_cast<float>(std::log(kernels().sum(x, n)));
    case Reduction::kLogSumExp: {
      const float peak = n ? *std::max_element(x, x + n) : 0.0F;
      double total = 0.0;
      for (std::int64_t i = 0; i < n; ++i) total += static_cast<double>(std::exp(x[i] - peak));
      return peak + static_cast<float>(std::log(total));
    }
  }
  return 0.0F;
}

std::int32_t reduce_row(Reduction how, const std::int32_t* x, std::int64_t n) {
  std::int64_t total = how == Reduction::kMax    ? std::numeric_limits<std::int32_t>::min()
                       : how == Reduction::kMin  ? std::numeric_limits<std::int32_t>::max()
                       : how == Reduction::kProd ? 1
                                                 : 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t v = x[i];
    if (how == Reduction::kMax) total = std::max(total, v);
    if (how == Reduction::kMin) total = std::min(total, v);
    if (how == Reduction::kProd) total = static_cast<std::int32_t>(static_cast<std::uint32_t>(total * v));
    if (how == Reduction::kSum || how == Reduction::kMean) total += v;
    if (how == Reduction::kSumSquare) total += v * v;
    if (how == Reduction::kL1) total += std::abs(v);
  }
  if (how == Reduction::kMean && n > 0) total /= n;
  return static_cast<std::int32_t>(static_cast<std::uint64_t>(total));
}

// Moves the reduced axes to the end; `plan` is empty when they are there already.
struct ToRows {
  Shape kept, shape;  // of the result without and with the reduced axes as 1
  std::int64_t rows = 1, length = 1;
  bool moved = false;
  CopyPlan plan;
};

ToRows to_rows(const Info& x, const std::vector<std::int64_t>& axes) {
  ToRows result;
  const std::vector<std::int64_t> strides = dense_strides(x.shape);
  Shape order_shape;
  std::vector<std::int64_t> order_strides;
  for (const bool reduced : {false, true}) {
    for (std::int64_t d = 0; d < x.rank(); ++d) {
      const std::int64_t size = x.shape[static_cast<std::size_t>(d)];
      if (std::binary_search(axes.begin(), axes.end(), d) != reduced) continue;
      order_shape.push_back(size);
      order_strides.push_back(strides[static_cast<std::size_t>(d)]);
      (reduced ? result.length : result.rows) *= size;
      if (!reduced) result.kept.push_back(size);
    }
  }
  std::int64_t expected = 1;
  for (std::size_t d = order_shape.size(); d-- > 0;) {
    if (order_shape[d] == 1) continue;
    result.moved = result.moved || order_strides[d] != expected;
    expected *= order_shape[d];
  }
  result.plan = CopyPlan(order_shape, order_strides, 0, dense_strides(order_shape), 0, storage_bytes(x.storage));
  result.shape = x.shape;
  for (const std::int64_t axis : axes) result.shape[static_cast<std::size_t>(axis)] = 1;
  return result;
}

template <Reduction kHow>
void reduce(Call& c) {
  const Info& x = c.in("x");
  const std::vector<std::int64_t> axes = c.axes("axes", x.rank());
  const ToRows rows = to_rows(x, axes);
  constexpr bool kFloatOnly = kHow == Reduction::kL2 || kHow == Reduction::kLogSum || kHow == Reduction::kLogSumExp;
  if (x.storage == Storage::kBool || (kFloatOnly && x.storage != Storage::kFloat))
    c.fail("needs numbers of another type");
  const bool ints = x.storage == Storage::kInt;
  const Slot in = x.slot, moved = rows.moved ? c.scratch(x.bytes()) : in;
  const Slot out = c.out(c.flag("keep_dims", false) ? rows.shape : rows.kept);
  c.cost(static_cast<double>(x.count));
  c.run([=](Frame& f) {
    if (rows.moved) rows.plan.run(f.pool, f.get<void>(in), f.get<void>(moved));
    for_rows(f.pool, rows.rows, rows.length, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        if (ints) {
          f.i32(out)[row] = reduce_row(kHow, f.i32(moved) + row * rows.length, rows.length);
        } else {
          f.f32(out)[row] = reduce_row(kHow, f.f32(moved) + row * rows.length, rows.length);
        }
      }
    });
  });
}

template <class T>
std::int32_t arg_extreme(const T* x, std::int64_t n, std::int64_t step, bool largest) {
  std::int64_t best = 0;
  for (std::int64_t i = 1; i < n; ++i) {
    if (largest ? x[i * step] > x[best * step] : x[i * step] < x[best * step]) best = i;
  }
  return static_cast<std::int32_t>(best);
}

template <bool kLargest>
void reduce_arg(Call& c) {
  const Info& x = c.in("x");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), -1));
  Shape shape = x.shape;
  const std::int64_t size = shape[axis], inner = dense_strides(shape)[axis];
  if (size == 0) c.fail("an empty dimension has no extreme");
  if (c.flag("keep_dims", false)) {
    shape[axis] = 1;
  } else {
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  const std::int64_t count = x.count / size;
  const bool ints = x.storage == Storage::kInt;
  if (x.storage == Storage::kBool) c.fail("needs numbers");
  const Slot in = x.slot, out = c.out(std::move(shape));
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = i / inner * size * inner + i % inner;
      f.i32(out)[i] = ints ? arg_extreme(f.i32(in) + at, size, inner, kLargest)
                           : arg_extreme(f.f32(in) + at, size, inner, kLargest);
    }
  });
}

template <class T, class Sum>
void cumulate(const T* in, T* out, std::int64_t size, std::int64_t step, bool exclusive, bool reverse) {
  Sum total = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const std::int64_t at = (reverse ? size - 1 - i : i) * step;
    const T value = in[at];
    if (exclusive) out[at] = static_cast<T>(total);
    total += static_cast<Sum>(value);
    if (!exclusive) out[at] = static_cast<T>(total);
  }
}

void cumsum(Call& c) {
  const Info& x = c.in("x");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), 0));
  const bool exclusive = c.flag("exclusive", false), reverse = c.flag("reverse", false);
  const bool ints = x.storage == Storage::kInt;
  if (x.storage == Storage::kBool) c.fail("needs numbers");
  const std::int64_t size = x.shape[axis], inner = dense_strides(x.shape)[axis];
  const std::int64_t lines = size ? x.count / size : 0;
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < lines; ++i) {
      const std::int64_t at = i / inner * size * inner + i % inner;
      if (ints) {
        cumulate<std::int32_t, std::int64_t>(f.i32(in) + at, f.i32(out) + at, size, inner, exclusive, reverse);
      } else {
        cumulate<float, double>(f.f32(in) + at, f.f32(out) + at, size, inner, exclusive, reverse);
      }
    }
  });
}

// Values in order, largest first (or smallest with `ascending`); equal values by index.
// Equal elements keep their order; NaNs come last.
void argsort(Call& c) {
  const Info& x = c.in("x");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), -1));
  const bool ascending = c.flag("ascending", false), ints = x.storage == Storage::kInt;
  if (x.storage == Storage::kBool) c.fail("needs numbers");
  const std::int64_t size = x.shape[axis], inner = dense_strides(x.shape)[axis], lines = size ? x.count / size : 0;
  const Slot in = x.slot, out = c.out(x.shape);
  c.run([=](Frame& f) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(size));
    for (std::int64_t line = 0; line < lines; ++line) {
      const std::int64_t from = line / inner * size * inner + line % inner;
      const auto value = [&](std::int32_t i) {
        return ints ? static_cast<double>(f.i32(in)[from + i * inner])
                    : static_cast<double>(f.f32(in)[from + i * inner]);
      };
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const double x_a = value(a), x_b = value(b);
        if (std::isnan(x_a) != std::isnan(x_b)) return std::isnan(x_b);
        if (x_a != x_b && !std::isnan(x_a)) return ascending ? x_a < x_b : x_a > x_b;
        return a < b;
      });
      for (std::int64_t i = 0; i < size; ++i) f.i32(out)[from + i * inner] = order[static_cast<std::size_t>(i)];
    }
  });
}

void topk(Call& c) {
  const Info& x = c.in("x");
  const auto axis = static_cast<std::size_t>(c.axis("axis", x.rank(), -1));
  const std::int64_t size = x.shape[axis], given = c.integer("k", 1), k = given == -1 ? size : given;
  if (k < 0 || k > size) c.fail("k of " + std::to_string(k) + " for " + std::to_string(size) + " elements");
  const bool ascending = c.flag("ascending", false), ints = x.storage == Storage::kInt;
  if (x.storage == Storage::kBool) c.fail("needs numbers");
  Shape shape = x.shape;
  shape[axis] = k;
  const std::int64_t inner = dense_strides(x.shape)[axis], lines = size ? x.count / size : 0;
  const bool indices = c.output_count() > 1;
  const Slot in = x.slot, values = c.out(shape, 0), places = indices ? c.out(shape, 1) : kNoSlot;
  c.run([=](Frame& f) {
    std::vector<std::int32_t> order(static_cast<std::size_t>(size));
    for (std::int64_t line = 0; line < lines; ++line) {
      const std::int64_t from = line / inner * size * inner + line % inner,
                         to = line / inner * k * inner + line % inner;
      std::iota(order.begin(), order.end(), 0);
      const auto value = [&](std::int32_t i) {
        return ints ? static_cast<double>(f.i32(in)[from + i * inner])
                    : static_cast<double>(f.f32(in)[from + i * inner]);
      };
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](std::int32_t a, std::int32_t b) {
        const double x_a = value(a), x_b = value(b);
        if (x_a != x_b && !std::isnan(x_a) && !std::isnan(x_b)) return ascending ? x_a < x_b : x_a > x_b;
        if (std::isnan(x_a) != std::isnan(x_b)) return std::isnan(x_b);  // NaN last
        return a < b;
      });
      for (std::int64_t i = 0; i < k; ++i) {
        const std::int32_t place = order[static_cast<std::size_t>(i)];
        if (ints) {
          f.i32(values)[to + i * inner] = f.i32(in)[from + place * inner];
        } else {
          f.f32(values)[to + i * inner] = f.f32(in)[from + place * inner];
        }
        if (indices) f.i32(places)[to + i * inner] = place;
      }
    }
  });
}

}  // namespace

OpTable reduce_ops() {
  return {
      {"reduce_mean", reduce<Reduction::kMean>},
      {"reduce_sum", reduce<Reduction::kSum>},
      {"reduce_max", reduce<Reduction::kMax>},
      {"reduce_min", reduce<Reduction::kMin>},
      {"reduce_prod", reduce<Reduction::kProd>},
      {"reduce_sum_square", reduce<Reduction::kSumSquare>},
      {"reduce_l1_norm", reduce<Reduction::kL1>},
      {"reduce_l2_norm", reduce<Reduction::kL2>},
      {"reduce_log_sum", reduce<Reduction::kLogSum>},
      {"reduce_log_sum_exp", reduce<Reduction::kLogSumExp>},
      {"reduce_argmax", reduce_arg<true>},
      {"reduce_argmin", reduce_arg<false>},
      {"cumsum", cumsum},
      {"argsort", argsort},
      {"topk", topk},
  };
}

}  // namespace coremlsim::mil
