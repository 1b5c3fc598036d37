#include "mil/ops/gemm.h"

#include <algorithm>
#include <cstring>

#include "mil/kernels/kernels.h"
#include "mil/program/aligned_buffer.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kPanelElements = 1 << 18;  // 1 MiB of fp32
constexpr std::int64_t kFewRows = 4;              // up to this many rows a product is a stream over the weights

// Grows only; bounded by the largest panel of any op.
float* panel_memory(std::int64_t elements) {
  thread_local AlignedBuffer buffer;
  thread_local std::int64_t capacity = 0;
  if (capacity < elements) {
    buffer = allocate(elements * 4);
    capacity = elements;
  }
  return static_cast<float*>(buffer.get());
}

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

void fill_bias(float* c, std::int64_t stride, std::int64_t m, std::int64_t n, const float* bias) {
  for (std::int64_t row = 0; row < m; ++row) {
    if (bias) {
      std::memcpy(c + row * stride, bias, static_cast<std::size_t>(n) * sizeof(float));
    } else {
      std::fill_n(c + row * stride, n, 0.0F);
    }
  }
}

// Rows [first, first + rows) x columns of what lies in memory, as fp32.
MatrixRef part(const Operand& x, std::int64_t row, std::int64_t column) {
  const std::int64_t at = x.transposed ? column * x.row_stride + row : row * x.row_stride + column;
  return {static_cast<const float*>(x.data) + at, x.row_stride, x.transposed};
}

// Widens rows x columns of the logical matrix, starting at (row, column), keeping its orientation in memory.
MatrixRef widen(const Operand& x, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns,
                float* panel) {
  const auto* half = static_cast<const std::uint16_t*>(x.data);
  const std::int64_t lines = x.transposed ? columns : rows, length = x.transposed ? rows : columns;
  const std::int64_t first = x.transposed ? column * x.row_stride + row : row * x.row_stride + column;
  for (std::int64_t line = 0; line < lines; ++line) {
    kernels().f16_to_f32(half + first + line * x.row_stride, panel + line * length, length);
  }
  return {panel, length, x.transposed};
}

// One tile of c, all of k.
void tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns, std::int64_t k,
          const Operand& a, const Operand& b, const float* bias, float* c, std::int64_t c_stride) {
  float* out = c + row * c_stride + column;
  fill_bias(out, c_stride, rows, columns, bias ? bias + column : nullptr);
  const std::int64_t a_panel = a.storage == Storage::kHalf ? round_up(rows * k, 16) : 0;
  const std::int64_t b_panel = b.storage == Storage::kHalf ? columns * k : 0;
  float* memory = a_panel + b_panel > 0 ? panel_memory(a_panel + b_panel) : nullptr;
  const MatrixRef left = a_panel ? widen(a, row, 0, rows, k, memory) : part(a, row, 0);
  const MatrixRef right = b_panel ? widen(b, 0, column, k, columns, memory + a_panel) : part(b, 0, column);
  kernels().matmul_add(rows, columns, k, left, right, out, c_stride);
}

void few_rows(ThreadPool* pool, std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b,
              const float* bias, float* c, std::int64_t c_stride) {
  const auto body = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = 0; row < m; ++row) {
      const float* x = static_cast<const float*>(a.data) + row * a.row_stride;
      float* out = c + row * c_stride;
      if (b.storage == Storage::kHalf) {
        kernels().dot_rows_f16(static_cast<const std::uint16_t*>(b.data) + begin * k, end - begin, k, x, out + begin);
      } else {
        kernels().dot_rows_f32(static_cast<const float*>(b.data) + begin * k, end - begin, k, x, out + begin);
      }
      if (bias) {
        for (std::int64_t i = begin; i < end; ++i) out[i] += bias[i];
      }
    }
  };
  if (pool) {
    const std::int64_t share = (n + pool->size() - 1) / pool->size();
    pool->parallel_for(n, std::max(share, (1 << 15) / std::max<std::int64_t>(k, 1) + 1), body);
  } else {
    body(0, n);
  }
}

bool is_stream(std::int64_t m, const Operand& a, const Operand& b, std::int64_t k) {
  return m <= kFewRows && b.transposed && b.row_stride == k && !a.transposed && a.storage == Storage::kFloat;
}

}  // namespace

void gemm_serial(std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b, const float* bias,
                 float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  if (k == 0) return fill_bias(c, c_stride, m, n, bias);
  if (is_stream(m, a, b, k)) return few_rows(nullptr, m, n, k, a, b, bias, c, c_stride);
  const std::int64_t columns =
      b.storage == Storage::kHalf ? std::clamp<std::int64_t>(kPanelElements / k / 16 * 16, 16, round_up(n, 16)) : n;
  const std::int64_t rows =
      a.storage == Storage::kHalf ? std::clamp<std::int64_t>(kPanelElements / k / 16 * 16, 16, round_up(m, 16)) : m;
  for (std::int64_t row = 0; row < m; row += rows) {
    for (std::int64_t column = 0; column < n; column += columns) {
      tile(row, std::min(rows, m - row), column, std::min(columns, n - column), k, a, b, bias, c, c_stride);
    }
  }
}

void gemm(ThreadPool& pool, std::int64_t m, std::int64_t n, std::int64_t k, const Operand& a, const Operand& b,
          const float* bias, float* c, std::int64_t c_stride) {
  if (m == 0 || n == 0) return;
  if (pool.size() == 1 || m * n * k < (1 << 18)) return gemm_serial(m, n, k, a, b, bias, c, c_stride);
  if (is_stream(m, a, b, k)) return few_rows(&pool, m, n, k, a, b, bias, c, c_stride);
  // Tiles along one dimension. Widened panels must be small; otherwise two tiles per thread even out the load.
  const bool along_n = b.storage == Storage::kHalf || (a.storage != Storage::kHalf && n >= m);
  const std::int64_t extent = along_n ? n : m;
  std::int64_t step = round_up((extent + 2 * pool.size() - 1) / (2 * pool.size()), 16);
  if ((along_n ? b : a).storage == Storage::kHalf) {
    step = std::min(step, std::clamp<std::int64_t>(kPanelElements / k / 16 * 16, 16, 512));
  }
  pool.parallel_for(extent, step, [&](std::int64_t begin, std::int64_t end) {
    if (along_n) {
      tile(0, m, begin, end - begin, k, a, b, bias, c, c_stride);
    } else {
      tile(begin, end - begin, 0, n, k, a, b, bias, c, c_stride);
    }
  });
}

}  // namespace coremlsim::mil
