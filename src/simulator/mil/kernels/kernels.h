// The inner loops, compiled once per instruction set and chosen at run time.
// Threads: pure functions; safe everywhere. None starts a thread.
// Ownership: callers own all memory. Nothing here checks anything: shapes were checked when the program was planned.
#pragma once

#include <cstdint>

namespace coremlsim::mil {

enum class Unary : std::uint8_t {
  kAbs,
  kCeil,
  kClampedLinear,
  kClampedRelu,
  kCos,
  kElu,
  kErf,
  kExp,
  kExp2,
  kFloor,
  kGelu,
  kGeluSigmoid,
  kGeluTanh,
  kHardSwish,
  kInverse,
  kLeakyRelu,
  kLinear,
  kLog,
  kNegate,
  kRelu,
  kRelu6,
  kRound,
  kRsqrt,
  kScaledTanh,
  kSigmoid,
  kSigmoidHard,
  kSign,
  kSilu,
  kSin,
  kSoftplus,
  kSoftsign,
  kSqrt,
  kSquare,
  kTan,
  kTanh,
  kThreshold,
  kThresholdedRelu,
  kAcos,
  kAsin,
  kAtan,
  kSinh,
  kCosh,
  kAtanh,
};

enum class Binary : std::uint8_t { kAdd, kSub, kMul, kDiv, kMaximum, kMinimum, kPow, kFloorDiv, kMod };
enum class Compare : std::uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual };

// A row-major matrix operand; `transposed` means that the logical matrix is the transpose of what lies in memory.
struct MatrixRef {
  const float* data = nullptr;
  std::int64_t row_stride = 0;  // elements
  bool transposed = false;
};

struct Kernels {
  const char* name;  // of the instruction set
  // c[m, n] += a[m, k] * b[k, n]; rows of c are c_stride apart.
  void (*matmul_add)(std::int64_t m, std::int64_t n, std::int64_t k, MatrixRef a, MatrixRef b, float* c,
                     std::int64_t c_stride);
  // out[i] = dot(x, w row i) for `rows` rows of fp16 (or fp32) weights.
  void (*dot_rows_f16)(const std::uint16_t* w, std::int64_t rows, std::int64_t k, const float* x, float* out);
  void (*dot_rows_f32)(const float* w, std::int64_t rows, std::int64_t k, const float* x, float* out);

  void (*f16_to_f32)(const std::uint16_t* in, float* out, std::int64_t n);
  void (*f32_to_f16)(const float* in, std::uint16_t* out, std::int64_t n);  // round to nearest even
  void (*round_to_f16)(float* data, std::int64_t n);

  void (*unary)(Unary op, const float* in, float* out, std::int64_t n, float alpha, float beta);
  // a_step and b_step are 0 or 1: one operand may be a single element.
  void (*binary_f32)(Binary op, const float* a, int a_step, const float* b, int b_step, float* out, std::int64_t n);
  void (*binary_i32)(Binary op, const std::int32_t* a, int a_step, const std::int32_t* b, int b_step, std::int32_t* out,
                     std::int64_t n);
  void (*compare_f32)(Compare op, const float* a, int a_step, const float* b, int b_step, std::uint8_t* out,
                      std::int64_t n);
  void (*compare_i32)(Compare op, const std::int32_t* a, int a_step, const std::int32_t* b, int b_step,
                      std::uint8_t* out, std::int64_t n);

  void (*softmax_row)(const float* in, float* out, std::int64_t n);
  // (x - mean) / sqrt(var + epsilon) * gamma + beta; gamma and beta may be null.
  void (*layer_norm_row)(const float* in, float* out, std::int64_t n, const float* gamma, const float* beta,
                         float epsilon);
  double (*sum)(const float* in, std::int64_t n);
  double (*sum_of_squares)(const float* in, std::int64_t n);
};

// The best set that this processor runs, or the one that the environment names (KVBACKING_SIMULATOR_KERNELS); throws
// ModelError when it cannot run here. Chosen once per process.
const Kernels& kernels();

}  // namespace coremlsim::mil
