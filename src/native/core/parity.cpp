#include "core/parity.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/element.h"

namespace kvbacking {
namespace {

bool is_kernel_dtype(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kFloat32; }

float rounded_down(double value) {
  auto nearest = static_cast<float>(value);  // may be +infinity
  if (static_cast<double>(nearest) > value) nearest = std::nextafter(nearest, -std::numeric_limits<float>::infinity());
  return nearest;
}

// A control usually agrees to the bit, and finding that out costs little next to what it saves.
bool equal_bits(const Tile& a, const Tile& b, std::size_t element_byte_count) {
  for (std::int64_t row = 0; row < a.rows; ++row) {
    if (std::memcmp(a.data + row * a.row_stride, b.data + row * b.row_stride,
                    static_cast<std::size_t>(a.row_length) * element_byte_count) != 0) {
      return false;
    }
  }
  return true;
}

// A larger value wins; of equal ones the first.
void keep_worse(double& worst, std::int64_t& index, double other, std::int64_t other_index) noexcept {
  if (other_index < 0) return;
  if (other > worst || index < 0 || (other == worst && other_index < index)) {
    worst = other;
    index = other_index;
  }
}

}  // namespace

ParityTally::ParityTally(DType a_dtype, DType b_dtype, double max_abs, double max_rel)
    : a_dtype_(a_dtype),
      b_dtype_(b_dtype),
      max_abs_(max_abs),
      max_rel_(max_rel),
      has_kernel_(is_kernel_dtype(a_dtype) && is_kernel_dtype(b_dtype)),
      smallest_sum_(a_dtype == DType::kFloat16 && b_dtype == DType::kFloat16 ? 0.0 : 1e-20),
      max_abs_down_(rounded_down(max_abs)),
      max_rel_down_(rounded_down(max_rel)) {}

void ParityTally::add(const Tile& a, const Tile& b, std::int64_t logical_start, ParityChunk& chunk) {
  constexpr Wanted kEverything{.worst = true, .rel = true, .over = true, .first_over = true, .sums = true};
  if (!has_kernel_) return exact_any(a, b, logical_start, kEverything, chunk);
  const ParityTile tile = a_dtype_ == b_dtype_ && equal_bits(a, b, element_size(a_dtype_))
                              ? equal_tile(a_dtype_, a)
                              : parity_tile(a_dtype_, a, b_dtype_, b, rounded_down(std::max(worst_rel_, 0.0)));
  if (!tile.plain || tile.sums.a_squared < smallest_sum_ || tile.sums.b_squared < smallest_sum_) {
    return exact_any(a, b, logical_start, kEverything, chunk);
  }
  chunk.sums.abs_error += tile.sums.abs_error;
  chunk.sums.dot += tile.sums.dot;
  chunk.sums.a_squared += tile.sums.a_squared;
  chunk.sums.b_squared += tile.sums.b_squared;
  chunk.pair_count += a.rows * a.row_length;

  Wanted wanted;
  wanted.worst = static_cast<double>(tile.max_abs_error) > worst_abs_;
  wanted.rel = worst_rel_index_ < 0 || (tile.may_exceed_rel && !std::isinf(worst_rel_));
  if (static_cast<double>(tile.max_abs_error) > max_abs_) {
    if (max_rel_ != 0) {
      wanted.over = may_exceed(a_dtype_, a, b_dtype_, b, max_abs_down_, max_rel_down_);
    } else {
      // The limit is one number, and an fp32 error exceeds it exactly when it exceeds its fp32 floor.
      over_count_ += count_above(a_dtype_, a, b_dtype_, b, max_abs_down_);
      wanted.first_over = first_over_index_ < 0;
    }
  }
  if (wanted.any()) exact_any(a, b, logical_start, wanted, chunk);
}

void ParityTally::exact_any(const Tile& a, const Tile& b, std::int64_t logical_start, Wanted wanted,
                            ParityChunk& chunk) {
  visit_dtype(a_dtype_, [&]<class A>(A) {
    if (a_dtype_ == b_dtype_) {
      exact<A, A>(a, b, logical_start, wanted, chunk);
    } else if (a_dtype_ == DType::kFloat16) {
      exact<Float16Element, Float32Element>(a, b, logical_start, wanted, chunk);
    } else {
      exact<Float32Element, Float16Element>(a, b, logical_start, wanted, chunk);
    }
  });
}

template <class A, class B>
void ParityTally::exact(const Tile& a, const Tile& b, std::int64_t logical_start, Wanted wanted, ParityChunk& chunk) {
  using Value = typename A::Value;
  static_assert(std::is_same_v<Value, typename B::Value>);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto note_over = [&](std::int64_t index) {
    if (wanted.over) ++over_count_;
    if (first_over_index_ < 0) first_over_index_ = index;
  };
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::byte* pa = a.data + row * a.row_stride;
    const std::byte* pb = b.data + row * b.row_stride;
    for (std::int64_t i = 0; i < a.row_length; ++i) {
      const std::int64_t index = logical_start + row * a.row_length + i;
      const Value x = A::read(pa + i * static_cast<std::int64_t>(sizeof(typename A::Stored)));
      const Value y = B::read(pb + i * static_cast<std::int64_t>(sizeof(typename B::Stored)));
      if (std::isnan(x) || std::isnan(y)) {
        if ((wanted.over || wanted.first_over) && std::isnan(x) != std::isnan(y)) note_over(index);
        continue;
      }
      // Equal infinities differ by nothing; unequal ones by infinity.
      const auto error = static_cast<double>(x == y ? Value{0} : std::abs(x - y));
      const double magnitude = std::abs(static_cast<double>(y));
      const bool finite = std::isfinite(x) && std::isfinite(y);
      if (wanted.worst && error > worst_abs_) {
        worst_abs_ = error;
        worst_abs_index_ = index;
      }
      if (wanted.rel) {
        const double rel = error == 0 ? 0 : (finite && magnitude != 0 ? error / magnitude : kInfinity);
        if (rel > worst_rel_) {
          worst_rel_ = rel;
          worst_rel_index_ = index;
        }
      }
      if ((wanted.over || wanted.first_over) && error > 0 && (!finite || error > max_abs_ + max_rel_ * magnitude)) {
        note_over(index);
      }
      if (!wanted.sums) continue;
      ++chunk.pair_count;
      chunk.sums.abs_error += error;
      if (!finite) continue;
      chunk.sums.dot += static_cast<double>(x) * static_cast<double>(y);
      chunk.sums.a_squared += static_cast<double>(x) * static_cast<double>(x);
      chunk.sums.b_squared += static_cast<double>(y) * static_cast<double>(y);
    }
  }
}

void ParityTally::merge(const ParityTally& other) noexcept {
  keep_worse(worst_abs_, worst_abs_index_, other.worst_abs_, other.worst_abs_index_);
  keep_worse(worst_rel_, worst_rel_index_, other.worst_rel_, other.worst_rel_index_);
  over_count_ += other.over_count_;
  if (other.first_over_index_ >= 0 && (first_over_index_ < 0 || other.first_over_index_ < first_over_index_)) {
    first_over_index_ = other.first_over_index_;
  }
}

ParityResult ParityTally::result(std::span<const ParityChunk> chunks) const {
  ParitySums sums;
  std::int64_t pair_count = 0;
  for (const ParityChunk& chunk : chunks) {
    sums.abs_error += chunk.sums.abs_error;
    sums.dot += chunk.sums.dot;
    sums.a_squared += chunk.sums.a_squared;
    sums.b_squared += chunk.sums.b_squared;
    pair_count += chunk.pair_count;
  }
  ParityResult result;
  result.max_abs_error = std::max(worst_abs_, 0.0);
  result.max_abs_index = worst_abs_index_;
  result.max_rel_error = std::max(worst_rel_, 0.0);
  result.max_rel_index = worst_rel_index_;
  result.over_tolerance_count = over_count_;
  result.first_over_index = first_over_index_;
  result.mean_abs_error = pair_count == 0 ? 0.0 : sums.abs_error / static_cast<double>(pair_count);
  if (sums.a_squared == 0 || sums.b_squared == 0) {
    result.cosine = sums.a_squared == sums.b_squared ? 1.0 : 0.0;
  } else {
    result.cosine = std::clamp(sums.dot / (std::sqrt(sums.a_squared) * std::sqrt(sums.b_squared)), -1.0, 1.0);
  }
  return result;
}

}  // namespace kvbacking
