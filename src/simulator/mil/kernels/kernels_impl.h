// Included once per instruction set by a file that defines KVB_ISA and renames namespace Eigen, so that the linker
// never merges code of two instruction sets. Only header-only code that inlines completely may be used here. Threads:
// see kernels.h. Ownership: see kernels.h.
#define KVB_CONCAT_(a, b) a##b
#define KVB_CONCAT(a, b) KVB_CONCAT_(a, b)
#define Eigen KVB_CONCAT(Eigen_, KVB_ISA)  // the namespace

#define EIGEN_DONT_PARALLELIZE 1
#define EIGEN_MPL2_ONLY 1

#include <Eigen/Core>
#include <cmath>
#include <cstring>
#include <unsupported/Eigen/SpecialFunctions>

#include "mil/kernels/kernels.h"

namespace coremlsim::mil {
namespace {

using Index = std::int64_t;
using Array = Eigen::Array<float, Eigen::Dynamic, 1>;
using In = Eigen::Map<const Array>;
using Out = Eigen::Map<Array>;
using RowMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ColMajor = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
using Stride = Eigen::OuterStride<>;

template <class A, class B>
void product(Index m, Index n, Index k, MatrixRef a, MatrixRef b, float* c, Index c_stride) {
  Eigen::Map<const A, 0, Stride> left(a.data, m, k, Stride(a.row_stride));
  Eigen::Map<const B, 0, Stride> right(b.data, k, n, Stride(b.row_stride));
  Eigen::Map<RowMajor, 0, Stride> result(c, m, n, Stride(c_stride));
  result.noalias() += left * right;
}

void matmul_add(Index m, Index n, Index k, MatrixRef a, MatrixRef b, float* c, Index c_stride) {
  if (a.transposed) {
    b.transposed ? product<ColMajor, ColMajor>(m, n, k, a, b, c, c_stride)
                 : product<ColMajor, RowMajor>(m, n, k, a, b, c, c_stride);
  } else {
    b.transposed ? product<RowMajor, ColMajor>(m, n, k, a, b, c, c_stride)
                 : product<RowMajor, RowMajor>(m, n, k, a, b, c, c_stride);
  }
}

// _Float16 compiles to F16C where the instruction set has it and to the compiler's exact routine elsewhere.
inline float widen(std::uint16_t bits) {
  _Float16 half;
  std::memcpy(&half, &bits, sizeof half);
  return static_cast<float>(half);
}

inline std::uint16_t narrow(float value) {
  const _Float16 half = static_cast<_Float16>(value);
  std::uint16_t bits;
  std::memcpy(&bits, &half, sizeof bits);
  return bits;
}

void f16_to_f32(const std::uint16_t* in, float* out, Index n) {
  for (Index i = 0; i < n; ++i) out[i] = widen(in[i]);
}

void f32_to_f16(const float* in, std::uint16_t* out, Index n) {
  for (Index i = 0; i < n; ++i) out[i] = narrow(in[i]);
}

void round_to_f16(float* data, Index n) {
  for (Index i = 0; i < n; ++i) data[i] = widen(narrow(data[i]));
}

// Blocks small enough that the widened weights never leave the first-level cache.
void dot_rows_f16(const std::uint16_t* w, Index rows, Index k, const float* x, float* out) {
  constexpr Index kBlock = 1024;
  alignas(64) float wide[kBlock];
  for (Index row = 0; row < rows; ++row) {
    float total = 0.0F;
    for (Index at = 0; at < k; at += kBlock) {
      const Index n = k - at < kBlock ? k - at : kBlock;
      f16_to_f32(w + row * k + at, wide, n);
      total += (In(wide, n) * In(x + at, n)).sum();
    }
    out[row] = total;
  }
}

void dot_rows_f32(const float* w, Index rows, Index k, const float* x, float* out) {
  for (Index row = 0; row < rows; ++row) out[row] = (In(w + row * k, k) * In(x, k)).sum();
}

constexpr float kSqrtHalf = 0.70710678118654752F;
constexpr float kSqrtTwoOverPi = 0.79788456080286536F;

// Eigen's vector tanh is accurate to a few ulp; 0.5 * (1 + tanh(x / 2)) never overflows.
template <class X>
auto sigmoid(const X& x) {
  return 0.5F * (0.5F * x).tanh() + 0.5F;
}

void unary(Unary op, const float* in, float* out, Index n, float alpha, float beta) {
  // Chunks bound Eigen's temporaries to the first-level cache, in place or not.
  constexpr Index kBlock = 2048;
  for (Index at = 0; at < n; at += kBlock) {
    const Index count = n - at < kBlock ? n - at : kBlock;
    const In x(in + at, count);
    Out y(out + at, count);
    switch (op) {
      case Unary::kAbs:
        y = x.abs();
        break;
      case Unary::kCeil:
        y = x.ceil();
        break;
      case Unary::kClampedLinear:
        y = x.max(alpha).min(beta);
        break;
      case Unary::kClampedRelu:
        y = (x >= 0.0F).select(x, alpha * x).min(beta);
        break;
      case Unary::kCos:
        for (Index i = 0; i < count; ++i) y[i] = std::cos(x[i]);
        break;
      case Unary::kElu:
        y = (x >= 0.0F).select(x, alpha * x.unaryExpr([](float v) { return std::expm1(v); }));
        break;
      case Unary::kErf:
        y = x.erf();
        break;
      case Unary::kExp:
        y = x.exp();
        break;
      case Unary::kExp2:
        for (Index i = 0; i < count; ++i) y[i] = std::exp2(x[i]);
        break;
      case Unary::kFloor:
        y = x.floor();
        break;
      case Unary::kGelu:
        y = 0.5F * x * (1.0F + (x * kSqrtHalf).erf());
        break;
      case Unary::kGeluSigmoid:
        y = x * sigmoid(1.702F * x);
        break;
      case Unary::kGeluTanh:
        y = 0.5F * x * (1.0F + (kSqrtTwoOverPi * (x + 0.044715F * x.cube())).tanh());
        break;
      case Unary::kHardSwish:
        y = x * (x + 3.0F).max(0.0F).min(6.0F) / 6.0F;
        break;
      case Unary::kInverse:
        y = (x + alpha).inverse();
        break;
      case Unary::kLeakyRelu:
        y = (x >= 0.0F).select(x, alpha * x);
        break;
      case Unary::kLinear:
        y = alpha * x + beta;
        break;
      case Unary::kLog:
        y = (x + alpha).log();
        break;
      case Unary::kNegate:
        y = -x;
        break;
      case Unary::kRelu:
        y = x.max(0.0F);
        break;
      case Unary::kRelu6:
        y = x.max(0.0F).min(6.0F);
        break;
      case Unary::kRound:
        y = x.rint();
        break;
      case Unary::kRsqrt:
        y = (x + alpha).sqrt().inverse();
        break;
      case Unary::kScaledTanh:
        y = alpha * (beta * x).tanh();
        break;
      case Unary::kSigmoid:
        y = sigmoid(x);
        break;
      case Unary::kSigmoidHard:
        y = (alpha * x + beta).max(0.0F).min(1.0F);
        break;
      case Unary::kSign:
        y = x.sign();
        break;
      case Unary::kSilu:
        y = x * sigmoid(x);
        break;
      case Unary::kSin:
        for (Index i = 0; i < count; ++i) y[i] = std::sin(x[i]);
        break;
      case Unary::kSoftplus:
        for (Index i = 0; i < count; ++i) y[i] = std::log1p(std::exp(-std::fabs(x[i]))) + std::fmax(x[i], 0.0F);
        break;
      case Unary::kSoftsign:
        y = x / (1.0F + x.abs());
        break;
      case Unary::kSqrt:
        y = x.sqrt();
        break;
      case Unary::kSquare:
        y = x.square();
        break;
      case Unary::kTan:
        for (Index i = 0; i < count; ++i) y[i] = std::tan(x[i]);
        break;
      case Unary::kTanh:
        y = x.tanh();
        break;
      case Unary::kThreshold:
        y = x.max(alpha);
        break;
      case Unary::kThresholdedRelu:
        y = (x >= alpha).select(x, 0.0F * x);
        break;
      case Unary::kAcos:
        for (Index i = 0; i < count; ++i) y[i] = std::acos(x[i]);
        break;
      case Unary::kAsin:
        for (Index i = 0; i < count; ++i) y[i] = std::asin(x[i]);
        break;
      case Unary::kAtan:
        for (Index i = 0; i < count; ++i) y[i] = std::atan(x[i]);
        break;
      case Unary::kSinh:
        for (Index i = 0; i < count; ++i) y[i] = std::sinh(x[i]);
        break;
      case Unary::kCosh:
        for (Index i = 0; i < count; ++i) y[i] = std::cosh(x[i]);
        break;
      case Unary::kAtanh:
        for (Index i = 0; i < count; ++i) y[i] = std::atanh(x[i]);
        break;
    }
  }
}

template <class T, class R, class F>
void apply(const T* a, int a_step, const T* b, int b_step, R* out, Index n, F f) {
  if (a_step && b_step) {
    for (Index i = 0; i < n; ++i) out[i] = f(a[i], b[i]);
  } else if (a_step) {
    const T right = *b;
    for (Index i = 0; i < n; ++i) out[i] = f(a[i], right);
  } else if (b_step) {
    const T left = *a;
    for (Index i = 0; i < n; ++i) out[i] = f(left, b[i]);
  } else {
    const R value = f(*a, *b);
    for (Index i = 0; i < n; ++i) out[i] = value;
  }
}

inline float floor_mod(float x, float y) {
  const float r = std::fmod(x, y);
  return r != 0.0F && ((r < 0.0F) != (y < 0.0F)) ? r + y : r;
}

void binary_f32(Binary op, const float* a, int as, const float* b, int bs, float* out, Index n) {
  switch (op) {
    case Binary::kAdd:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x + y; });
    case Binary::kSub:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x - y; });
    case Binary::kMul:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x * y; });
    case Binary::kDiv:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x / y; });
    case Binary::kMaximum:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x > y || x != x ? x : y; });
    case Binary::kMinimum:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return x < y || x != x ? x : y; });
    case Binary::kPow:
      if (!bs && *b == 2.0F) return apply(a, as, b, bs, out, n, [](float x, float) { return x * x; });
      return apply(a, as, b, bs, out, n, [](float x, float y) { return std::pow(x, y); });
    case Binary::kFloorDiv:
      return apply(a, as, b, bs, out, n, [](float x, float y) { return std::floor(x / y); });
    case Binary::kMod:
      return apply(a, as, b, bs, out, n, floor_mod);
  }
}

inline std::int32_t wrap(std::int64_t value) { return static_cast<std::int32_t>(static_cast<std::uint64_t>(value)); }

// Division by zero gives 0: there is no integer to say it with, and a model must not end the process.
inline std::int64_t floor_div(std::int64_t x, std::int64_t y) {
  if (y == 0) return 0;
  const std::int64_t q = x / y;
  return q - (x % y != 0 && ((x % y < 0) != (y < 0)));
}

inline std::int64_t int_pow(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  std::uint32_t result = 1, factor = static_cast<std::uint32_t>(base);
  for (std::int64_t e = exponent; e > 0; e >>= 1) {
    if (e & 1) result *= factor;
    factor *= factor;
  }
  return static_cast<std::int32_t>(result);
}

void binary_i32(Binary op, const std::int32_t* a, int as, const std::int32_t* b, int bs, std::int32_t* out, Index n) {
  using I = std::int64_t;
  switch (op) {
    case Binary::kAdd:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x + y); });
    case Binary::kSub:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x - y); });
    case Binary::kMul:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x * y); });
    case Binary::kDiv:
    case Binary::kFloorDiv:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(floor_div(x, y)); });
    case Binary::kMaximum:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x > y ? x : y); });
    case Binary::kMinimum:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x < y ? x : y); });
    case Binary::kPow:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(int_pow(x, y)); });
    case Binary::kMod:
      return apply(a, as, b, bs, out, n, [](I x, I y) { return wrap(x - floor_div(x, y) * y); });
  }
}

template <class T>
void compare(Compare op, const T* a, int as, const T* b, int bs, std::uint8_t* out, Index n) {
  switch (op) {
    case Compare::kEqual:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x == y; });
    case Compare::kNotEqual:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x != y; });
    case Compare::kLess:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x < y; });
    case Compare::kLessEqual:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x <= y; });
    case Compare::kGreater:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x > y; });
    case Compare::kGreaterEqual:
      return apply(a, as, b, bs, out, n, [](T x, T y) -> std::uint8_t { return x >= y; });
  }
}

void softmax_row(const float* in, float* out, Index n) {
  const In x(in, n);
  Out y(out, n);
  const float peak = x.maxCoeff();
  y = (x - peak).exp();
  y *= 1.0F / y.sum();
}

void layer_norm_row(const float* in, float* out, Index n, const float* gamma, const float* beta, float epsilon) {
  const In x(in, n);
  Out y(out, n);
  const float mean = x.mean();
  y = x - mean;
  y *= 1.0F / std::sqrt(y.square().mean() + epsilon);
  if (gamma) y *= In(gamma, n);
  if (beta) y += In(beta, n);
}

// Pairwise inside a block, double across blocks.
double sum(const float* in, Index n) {
  double total = 0.0;
  for (Index at = 0; at < n; at += 4096) total += static_cast<double>(In(in + at, n - at < 4096 ? n - at : 4096).sum());
  return total;
}

double sum_of_squares(const float* in, Index n) {
  double total = 0.0;
  for (Index at = 0; at < n; at += 4096) {
    total += static_cast<double>(In(in + at, n - at < 4096 ? n - at : 4096).square().sum());
  }
  return total;
}

}  // namespace

extern const Kernels KVB_CONCAT(kKernels_, KVB_ISA);
const Kernels KVB_CONCAT(kKernels_, KVB_ISA) = {
    KVB_ISA_NAME, matmul_add,     dot_rows_f16, dot_rows_f32,   f16_to_f32,     f32_to_f16,
    round_to_f16, unary,          binary_f32,   binary_i32,     compare<float>, compare<std::int32_t>,
    softmax_row,  layer_norm_row, sum,          sum_of_squares,
};

}  // namespace coremlsim::mil
