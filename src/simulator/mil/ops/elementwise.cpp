// Elementwise arithmetic, activations, comparisons, logic, select, cast, clip.
#include <cmath>
#include <cstring>
#include <limits>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

void unary_step(Call& c, Unary op, float alpha = 0.0F, float beta = 0.0F) {
  const Info& x = c.in("x");
  if (x.storage != Storage::kFloat) c.fail("needs a floating point tensor");
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  const std::int64_t count = x.count;
  c.run([=](Frame& f) {
    const float* source = f.f32(in);
    float* target = f.f32(out);
    for_elements(f.pool, count, [=](std::int64_t begin, std::int64_t end) {
      kernels().unary(op, source + begin, target + begin, end - begin, alpha, beta);
    });
  });
}

template <Unary kOp>
void unary(Call& c) {
  const Info& x = c.in("x");
  if constexpr (kOp == Unary::kAbs || kOp == Unary::kSign || kOp == Unary::kSquare || kOp == Unary::kRelu) {
    if (x.storage == Storage::kInt) {
      const Slot in = x.slot, out = c.out_over(x, x.shape);
      const std::int64_t count = x.count;
      c.run([=](Frame& f) {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::int64_t v = f.i32(in)[i];
          const std::int64_t r = kOp == Unary::kAbs      ? (v < 0 ? -v : v)
                                 : kOp == Unary::kSquare ? v * v
                                 : kOp == Unary::kRelu   ? (v > 0 ? v : 0)
                                                         : (v > 0) - (v < 0);
          f.i32(out)[i] = static_cast<std::int32_t>(static_cast<std::uint64_t>(r));
        }
      });
      return;
    }
  }
  unary_step(c, kOp);
}

template <Unary kOp>
void unary_alpha_beta(Call& c) {
  unary_step(c, kOp, c.number("alpha", 0.0F), c.number("beta", 0.0F));
}

void inverse(Call& c) { unary_step(c, Unary::kInverse, c.number("epsilon", 1e-4F)); }
void log(Call& c) { unary_step(c, Unary::kLog, c.number("epsilon", 1e-45F)); }
void rsqrt(Call& c) { unary_step(c, Unary::kRsqrt, c.number("epsilon", 1e-12F)); }
void threshold(Call& c) { unary_step(c, Unary::kThreshold, c.number("alpha")); }
void clip(Call& c) { unary_step(c, Unary::kClampedLinear, c.number("alpha"), c.number("beta")); }

void gelu(Call& c) {
  const std::string mode = c.text("mode", "EXACT");
  if (mode == "EXACT") return unary_step(c, Unary::kGelu);
  if (mode == "TANH_APPROXIMATION") return unary_step(c, Unary::kGeluTanh);
  if (mode == "SIGMOID_APPROXIMATION") return unary_step(c, Unary::kGeluSigmoid);
  c.fail("unknown mode '" + mode + "'");
}

// Runs kernel(op, a, a_step, b, b_step, out, n) over the rows of a broadcast.
template <class T, class R, class Op>
Step binary_step(Op op, void (*kernel)(Op, const T*, int, const T*, int, R*, std::int64_t), Slot a, Slot b, Slot out,
                 const Broadcast& loops) {
  return [=](Frame& f) {
    const T* left = f.get<const T>(a);
    const T* right = f.get<const T>(b);
    R* target = f.get<R>(out);
    const int a_step = loops.inner_step[0], b_step = loops.inner_step[1];
    if (loops.rows == 1) {
      for_elements(f.pool, loops.length, [=](std::int64_t begin, std::int64_t end) {
        kernel(op, left + begin * a_step, a_step, right + begin * b_step, b_step, target + begin, end - begin);
      });
      return;
    }
    for_rows(f.pool, loops.rows, loops.length, [=, &loops](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto at = loops.offsets<2>(row);
        kernel(op, left + at[0], a_step, right + at[1], b_step, target + row * loops.length, loops.length);
      }
    });
  };
}

template <Binary kOp>
void binary(Call& c) {
  const Info& x = c.in("x");
  const Info& y = c.in("y");
  if (x.storage != y.storage) c.fail("x and y have different element types");
  if (x.storage == Storage::kBool || x.storage == Storage::kString) c.fail("needs numbers");
  const Shape shape = broadcast_shape(x.shape, y.shape);
  const Broadcast loops(shape, {x.shape, y.shape});
  const Slot a = x.slot, b = y.slot;
  const bool over_x = x.shape == shape;
  const Slot out = over_x ? c.out_over(x, shape) : y.shape == shape ? c.out_over(y, shape) : c.out(shape);
  if (x.storage == Storage::kFloat) {
    c.run(binary_step(kOp, kernels().binary_f32, a, b, out, loops));
  } else {
    c.run(binary_step(kOp, kernels().binary_i32, a, b, out, loops));
  }
}

void compare_bools(Compare op, const std::uint8_t* a, int as, const std::uint8_t* b, int bs, std::uint8_t* out,
                   std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = ((a[i * as] != 0) == (b[i * bs] != 0)) == (op == Compare::kEqual);
  }
}

template <Compare kOp>
void compare(Call& c) {
  const Info& x = c.in("x");
  const Info& y = c.in("y");
  if (x.storage != y.storage) c.fail("x and y have different element types");
  const Shape shape = broadcast_shape(x.shape, y.shape);
  const Broadcast loops(shape, {x.shape, y.shape});
  const Slot a = x.slot, b = y.slot, out = c.out(shape);
  if (x.storage == Storage::kFloat) return c.run(binary_step(kOp, kernels().compare_f32, a, b, out, loops));
  if (x.storage == Storage::kInt) return c.run(binary_step(kOp, kernels().compare_i32, a, b, out, loops));
  if (x.storage == Storage::kBool && (kOp == Compare::kEqual || kOp == Compare::kNotEqual)) {
    return c.run(binary_step(kOp, compare_bools, a, b, out, loops));
  }
  c.fail("cannot compare values of this type");
}

enum class Logic : std::uint8_t { kAnd, kOr, kXor };

void logic_row(Logic op, const std::uint8_t* a, int as, const std::uint8_t* b, int bs, std::uint8_t* out,
               std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    const bool x = a[i * as] != 0, y = b[i * bs] != 0;
    out[i] = op == Logic::kAnd ? x && y : op == Logic::kOr ? x || y : x != y;
  }
}

template <Logic kOp>
void logical(Call& c) {
  const Info& x = c.in("x");
  const Info& y = c.in("y");
  if (x.storage != Storage::kBool || y.storage != Storage::kBool) c.fail("needs bools");
  const Shape shape = broadcast_shape(x.shape, y.shape);
  const Slot a = x.slot, b = y.slot;
  const Broadcast loops(shape, {x.shape, y.shape});
  const Slot out = c.out(shape);
  c.run(binary_step(kOp, logic_row, a, b, out, loops));
}

void logical_not(Call& c) {
  const Info& x = c.in("x");
  if (x.storage != Storage::kBool) c.fail("needs bools");
  const std::int64_t count = x.count;
  const Slot in = x.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    for (std::int64_t i = 0; i < count; ++i) f.bytes(out)[i] = f.bytes(in)[i] == 0;
  });
}

template <class T>
Step select_step(Slot cond, Slot a, Slot b, Slot out, const Broadcast& loops) {
  return [=](Frame& f) {
    const std::uint8_t* choose = f.bytes(cond);
    const T* yes = f.get<const T>(a);
    const T* no = f.get<const T>(b);
    T* target = f.get<T>(out);
    for_rows(f.pool, loops.rows, loops.length, [=, &loops](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const auto at = loops.offsets<3>(row);
        for (std::int64_t i = 0; i < loops.length; ++i) {
          target[row * loops.length + i] = choose[at[0] + i * loops.inner_step[0]]
                                               ? yes[at[1] + i * loops.inner_step[1]]
                                               : no[at[2] + i * loops.inner_step[2]];
        }
      }
    });
  };
}

void select(Call& c) {
  const Info& cond = c.in("cond");
  const Info& a = c.in("a");
  const Info& b = c.in("b");
  if (cond.storage != Storage::kBool || a.storage != b.storage)
    c.fail("needs a bool condition and two tensors of one type");
  const Shape shape = broadcast_shape(cond.shape, broadcast_shape(a.shape, b.shape));
  const Broadcast loops(shape, {cond.shape, a.shape, b.shape});
  const Slot cs = cond.slot, as = a.slot, bs = b.slot;
  const Storage storage = a.storage;
  const Slot out = c.out(shape);
  if (storage == Storage::kBool) {
    c.run(select_step<std::uint8_t>(cs, as, bs, out, loops));
  } else {
    c.run(select_step<std::uint32_t>(cs, as, bs, out, loops));  // four bytes, whatever they mean
  }
}

std::pair<std::int64_t, std::int64_t> integer_range(MilType type) {
  const int bits = bit_width(type);
  if (bits >= 32) return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
  const std::int64_t span = std::int64_t{1} << bits;
  return is_signed_integer(type) ? std::pair{-span / 2, span / 2 - 1} : std::pair{std::int64_t{0}, span - 1};
}

// To an integer: truncates towards zero and saturates. Between floating point types: nothing, Numerics decides where
// values are rounded.
void cast(Call& c) {
  const Info& x = c.in("x");
  const MilType to = c.declared().dtype;
  const Storage target = storage_of(to);
  const Slot in = x.slot;
  const std::int64_t count = x.count;
  if (x.storage == Storage::kString || target == Storage::kString) c.fail("cannot cast strings");
  if (x.storage == target && target != Storage::kInt) return c.alias(x, x.shape);
  const std::pair<std::int64_t, std::int64_t> range = integer_range(to);
  const std::int64_t low = range.first, high = range.second;
  if (x.storage == Storage::kInt && target == Storage::kInt) {
    const auto [from_low, from_high] = integer_range(x.dtype);
    if (from_low >= low && from_high <= high) return c.alias(x, x.shape);
  }
  const Storage source = x.storage;
  const Slot out = c.out(x.shape);
  c.run([=](Frame& f) {
    for_elements(f.pool, count, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const double v = source == Storage::kFloat ? static_cast<double>(f.f32(in)[i])
                         : source == Storage::kInt ? static_cast<double>(f.i32(in)[i])
                                                   : (f.bytes(in)[i] != 0 ? 1.0 : 0.0);
        if (target == Storage::kFloat) {
          f.f32(out)[i] = static_cast<float>(v);
        } else if (target == Storage::kBool) {
          f.bytes(out)[i] = v != 0.0;
        } else {
          const double bounded =
              std::fmin(std::fmax(std::trunc(v), static_cast<double>(low)), static_cast<double>(high));
          f.i32(out)[i] = std::isnan(v) ? 0 : static_cast<std::int32_t>(bounded);
        }
      }
    });
  });
}

// alpha * log(1 + exp(beta * x)) with one alpha and beta per channel, on axis 1.
void softplus_parametric(Call& c) {
  const Info& x = c.in("x");
  const Info& alpha = c.in("alpha");
  const Info& beta = c.in("beta");
  if (x.rank() < 2 || x.storage != Storage::kFloat) c.fail("needs a floating point tensor of rank 2 or more");
  const std::int64_t channels = x.shape[1];
  if (alpha.count != channels || beta.count != channels || alpha.storage != Storage::kFloat ||
      beta.storage != Storage::kFloat) {
    c.fail("needs one alpha and beta per channel");
  }
  const std::int64_t inner = x.count ? x.count / x.shape[0] / channels : 0, rows = inner ? x.count / inner : 0;
  const Slot in = x.slot, as = alpha.slot, bs = beta.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    for_rows(f.pool, rows, inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        float* to = f.f32(out) + row * inner;
        kernels().unary(Unary::kLinear, f.f32(in) + row * inner, to, inner, f.f32(bs)[row % channels], 0.0F);
        kernels().unary(Unary::kSoftplus, to, to, inner, 0.0F, 0.0F);
        kernels().unary(Unary::kLinear, to, to, inner, f.f32(as)[row % channels], 0.0F);
      }
    });
  });
}

// One slope per channel, on axis 1 (rank 3 and more) or 0.
void prelu(Call& c) {
  const Info& x = c.in("x");
  const Info& alpha = c.in("alpha");
  if (x.rank() < 2) c.fail("needs a rank of at least 2");
  const std::int64_t channels = x.shape[1];
  if (alpha.count != channels || alpha.storage != Storage::kFloat || x.storage != Storage::kFloat) {
    c.fail("needs one alpha per channel");
  }
  const std::int64_t inner = x.count ? x.count / x.shape[0] / channels : 0, rows = inner ? x.count / inner : 0;
  const Slot in = x.slot, slope = alpha.slot, out = c.out_over(x, x.shape);
  c.run([=](Frame& f) {
    for_rows(f.pool, rows, inner, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        kernels().unary(Unary::kLeakyRelu, f.f32(in) + row * inner, f.f32(out) + row * inner, inner,
                        f.f32(slope)[row % channels], 0.0F);
      }
    });
  });
}

}  // namespace

OpTable elementwise_ops() {
  return {
      {"abs", unary<Unary::kAbs>},
      {"acos", unary<Unary::kAcos>},
      {"asin", unary<Unary::kAsin>},
      {"atan", unary<Unary::kAtan>},
      {"atanh", unary<Unary::kAtanh>},
      {"ceil", unary<Unary::kCeil>},
      {"cos", unary<Unary::kCos>},
      {"cosh", unary<Unary::kCosh>},
      {"erf", unary<Unary::kErf>},
      {"exp", unary<Unary::kExp>},
      {"exp2", unary<Unary::kExp2>},
      {"floor", unary<Unary::kFloor>},
      {"relu", unary<Unary::kRelu>},
      {"relu6", unary<Unary::kRelu6>},
      {"round", unary<Unary::kRound>},
      {"sigmoid", unary<Unary::kSigmoid>},
      {"sign", unary<Unary::kSign>},
      {"silu", unary<Unary::kSilu>},
      {"sin", unary<Unary::kSin>},
      {"sinh", unary<Unary::kSinh>},
      {"softplus", unary<Unary::kSoftplus>},
      {"softsign", unary<Unary::kSoftsign>},
      {"sqrt", unary<Unary::kSqrt>},
      {"square", unary<Unary::kSquare>},
      {"tan", unary<Unary::kTan>},
      {"tanh", unary<Unary::kTanh>},
      {"elu", unary_alpha_beta<Unary::kElu>},
      {"leaky_relu", unary_alpha_beta<Unary::kLeakyRelu>},
      {"linear_activation", unary_alpha_beta<Unary::kLinear>},
      {"scaled_tanh", unary_alpha_beta<Unary::kScaledTanh>},
      {"sigmoid_hard", unary_alpha_beta<Unary::kSigmoidHard>},
      {"thresholded_relu", unary_alpha_beta<Unary::kThresholdedRelu>},
      {"clamped_relu", unary_alpha_beta<Unary::kClampedRelu>},
      {"softplus_parametric", softplus_parametric},
      {"clip", clip},
      {"gelu", gelu},
      {"inverse", inverse},
      {"log", log},
      {"rsqrt", rsqrt},
      {"threshold", threshold},
      {"prelu", prelu},
      {"add", binary<Binary::kAdd>},
      {"sub", binary<Binary::kSub>},
      {"mul", binary<Binary::kMul>},
      {"real_div", binary<Binary::kDiv>},
      {"floor_div", binary<Binary::kFloorDiv>},
      {"mod", binary<Binary::kMod>},
      {"pow", binary<Binary::kPow>},
      {"maximum", binary<Binary::kMaximum>},
      {"minimum", binary<Binary::kMinimum>},
      {"equal", compare<Compare::kEqual>},
      {"not_equal", compare<Compare::kNotEqual>},
      {"less", compare<Compare::kLess>},
      {"less_equal", compare<Compare::kLessEqual>},
      {"greater", compare<Compare::kGreater>},
      {"greater_equal", compare<Compare::kGreaterEqual>},
      {"logical_and", logical<Logic::kAnd>},
      {"logical_or", logical<Logic::kOr>},
      {"logical_xor", logical<Logic::kXor>},
      {"logical_not", logical_not},
      {"select", select},
      {"cast", cast},
  };
}

}  // namespace coremlsim::mil
