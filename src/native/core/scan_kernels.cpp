#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/scan_kernels.cpp"
#include "core/targets.h"  // before Highway
//
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "core/half.h"
#include "core/scan_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kvbacking::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
const T* Row(const Tile& tile, std::int64_t row) {
  return reinterpret_cast<const T*>(tile.data + row * tile.row_stride);
}

// Feeds every element of the tile to step(vector) in whole vectors. A ragged end is covered by a last vector that
// overlaps its predecessor, which the extremes do not notice; a row shorter than a vector is repeated up to one.
template <class D, class Step>
HWY_INLINE void ForEachVector(D d, const Tile& tile, const Step& step) {
  using T = hn::TFromD<D>;
  constexpr std::int64_t kUnroll = 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t length = tile.row_length;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const T* HWY_RESTRICT p = Row<T>(tile, row);
    std::int64_t i = 0;
    for (; i + kUnroll * lanes <= length; i += kUnroll * lanes) {
      step(0, hn::LoadU(d, p + i));
      step(1, hn::LoadU(d, p + i + lanes));
      step(0, hn::LoadU(d, p + i + 2 * lanes));
      step(1, hn::LoadU(d, p + i + 3 * lanes));
    }
    for (; i + lanes <= length; i += lanes) step(0, hn::LoadU(d, p + i));
    if (i == length) continue;
    if (length >= lanes) {
      step(0, hn::LoadU(d, p + length - lanes));
    } else {
      HWY_ALIGN T repeated[RangeState::kBytes / sizeof(T)];
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        std::memcpy(repeated + lane, reinterpret_cast<const std::byte*>(p) + lane % length * sizeof(T), sizeof(T));
      }
      step(0, hn::Load(d, repeated));
    }
  }
}

// U: the element's bits. kInfinity: the bits of +infinity.
template <typename U, U kInfinity>
TileFlags FloatRange(const Tile& tile, RangeState* state) {
  constexpr U kSign = static_cast<U>(U{1} << (sizeof(U) * 8 - 1));
  using I = std::make_signed_t<U>;
  const hn::ScalableTag<U> du;
  const hn::ScalableTag<I> di;
  auto umax0 = hn::Zero(du), umax1 = hn::Zero(du);
  auto umin0 = hn::Set(du, std::numeric_limits<U>::max()), umin1 = umin0;
  auto smax0 = hn::Set(di, std::numeric_limits<I>::min()), smax1 = smax0;
  ForEachVector(du, tile, [&](int half, auto v) HWY_ATTR {
    auto& umax = half == 0 ? umax0 : umax1;
    auto& umin = half == 0 ? umin0 : umin1;
    auto& smax = half == 0 ? smax0 : smax1;
    umax = hn::Max(umax, v);
    umin = hn::Min(umin, v);
    smax = hn::Max(smax, hn::BitCast(di, v));
  });
  auto umax = hn::Max(umax0, umax1);
  auto umin = hn::Min(umin0, umin1);
  auto smax = hn::Max(smax0, smax1);

  // Negative infinity and negative NaNs top the unsigned order, the positive ones the signed order.
  const auto last_negative = hn::Set(du, static_cast<U>(kSign | (kInfinity - 1)));
  const auto last_positive = hn::Set(di, static_cast<I>(kInfinity - 1));
  TileFlags flags;
  flags.non_zero_bits = !hn::AllTrue(du, hn::Eq(umax, hn::Zero(du)));
  flags.non_finite = !hn::AllTrue(du, hn::Eq(hn::Max(umax, last_negative), last_negative)) ||
                     !hn::AllTrue(di, hn::Eq(hn::Max(smax, last_positive), last_positive));
  if (state == nullptr || flags.non_finite) return flags;
  U* HWY_RESTRICT state_umax = reinterpret_cast<U*>(state->unsigned_max);
  U* HWY_RESTRICT state_umin = reinterpret_cast<U*>(state->unsigned_min);
  I* HWY_RESTRICT state_smax = reinterpret_cast<I*>(state->signed_max);
  hn::Store(hn::Max(umax, hn::Load(du, state_umax)), du, state_umax);
  hn::Store(hn::Min(umin, hn::Load(du, state_umin)), du, state_umin);
  hn::Store(hn::Max(smax, hn::Load(di, state_smax)), di, state_smax);
  return flags;
}

template <typename I>
TileFlags IntegerRange(const Tile& tile, RangeState* state) {
  const hn::ScalableTag<I> di;
  auto max0 = hn::Set(di, std::numeric_limits<I>::min()), max1 = max0;
  auto min0 = hn::Set(di, std::numeric_limits<I>::max()), min1 = min0;
  ForEachVector(di, tile, [&](int half, auto v) HWY_ATTR {
    auto& smax = half == 0 ? max0 : max1;
    auto& smin = half == 0 ? min0 : min1;
    smax = hn::Max(smax, v);
    smin = hn::Min(smin, v);
  });
  const auto smax = hn::Max(max0, max1);
  const auto smin = hn::Min(min0, min1);
  TileFlags flags;
  flags.non_zero_bits = !hn::AllTrue(di, hn::Eq(smax, hn::Zero(di))) || !hn::AllTrue(di, hn::Eq(smin, hn::Zero(di)));
  if (state == nullptr) return flags;
  I* HWY_RESTRICT state_max = reinterpret_cast<I*>(state->signed_max);
  I* HWY_RESTRICT state_min = reinterpret_cast<I*>(state->signed_min);
  hn::Store(hn::Max(smax, hn::Load(di, state_max)), di, state_max);
  hn::Store(hn::Min(smin, hn::Load(di, state_min)), di, state_min);
  return flags;
}

TileFlags RangeFloat16(const Tile& tile, RangeState* state) { return FloatRange<std::uint16_t, 0x7C00>(tile, state); }
TileFlags RangeFloat32(const Tile& tile, RangeState* state) {
  return FloatRange<std::uint32_t, 0x7F800000>(tile, state);
}
TileFlags RangeInt8(const Tile& tile, RangeState* state) { return IntegerRange<std::int8_t>(tile, state); }
TileFlags RangeInt32(const Tile& tile, RangeState* state) { return IntegerRange<std::int32_t>(tile, state); }

template <typename U>
std::int64_t CountEqualBits(const Tile& tile, std::uint64_t pattern) {
  const hn::ScalableTag<U> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto wanted = static_cast<U>(pattern);
  const auto wanted_lanes = hn::Set(d, wanted);
  std::size_t count = 0;
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const U* HWY_RESTRICT p = Row<U>(tile, row);
    std::int64_t i = 0;
    for (; i + lanes <= tile.row_length; i += lanes) {
      count += hn::CountTrue(d, hn::Eq(hn::LoadU(d, p + i), wanted_lanes));
    }
    for (; i < tile.row_length; ++i) {
      U bits = 0;
      std::memcpy(&bits, reinterpret_cast<const std::byte*>(p) + i * static_cast<std::int64_t>(sizeof(U)), sizeof(U));
      count += bits == wanted;
    }
  }
  return static_cast<std::int64_t>(count);
}

std::int64_t CountEqual1(const Tile& tile, std::uint64_t pattern) {
  return CountEqualBits<std::uint8_t>(tile, pattern);
}
std::int64_t CountEqual2(const Tile& tile, std::uint64_t pattern) {
  return CountEqualBits<std::uint16_t>(tile, pattern);
}
std::int64_t CountEqual4(const Tile& tile, std::uint64_t pattern) {
  return CountEqualBits<std::uint32_t>(tile, pattern);
}
std::int64_t CountEqual8(const Tile& tile, std::uint64_t pattern) {
  return CountEqualBits<std::uint64_t>(tile, pattern);
}

}  // namespace kvbacking::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbacking {
namespace {

template <typename T>
void fill_lanes(std::byte* lanes, T value) {
  for (std::size_t i = 0; i < RangeState::kBytes; i += sizeof(T)) std::memcpy(lanes + i, &value, sizeof(T));
}

template <typename T, class Fold>
T fold_lanes(const std::byte* lanes, Fold fold) {
  T result;
  std::memcpy(&result, lanes, sizeof(T));
  for (std::size_t i = sizeof(T); i < RangeState::kBytes; i += sizeof(T)) {
    T lane;
    std::memcpy(&lane, lanes + i, sizeof(T));
    result = fold(result, lane);
  }
  return result;
}

template <typename T>
void reset_lanes(RangeState& state) {
  using U = std::make_unsigned_t<T>;
  fill_lanes<U>(state.unsigned_max, 0);
  fill_lanes<U>(state.unsigned_min, std::numeric_limits<U>::max());
  fill_lanes<T>(state.signed_max, std::numeric_limits<T>::min());
  fill_lanes<T>(state.signed_min, std::numeric_limits<T>::max());
}

constexpr auto kMax = [](auto a, auto b) { return std::max(a, b); };
constexpr auto kMin = [](auto a, auto b) { return std::min(a, b); };

template <typename U, class ToDouble>
Extremes reduce_float(const RangeState& state, ToDouble to_double) {
  using I = std::make_signed_t<U>;
  constexpr U kSign = static_cast<U>(U{1} << (sizeof(U) * 8 - 1));
  const U umax = fold_lanes<U>(state.unsigned_max, kMax);
  const U umin = fold_lanes<U>(state.unsigned_min, kMin);
  const I smax = fold_lanes<I>(state.signed_max, kMax);
  // No negative value: the smallest is the unsigned minimum. No positive one: so is the largest (nearest to zero).
  const U min_bits = (umax & kSign) != 0 ? umax : umin;
  const U max_bits = smax >= 0 ? static_cast<U>(smax) : umin;
  return {to_double(min_bits), to_double(max_bits), (umax == 0 || umax == kSign) && smax <= 0};
}

template <typename I>
Extremes reduce_integer(const RangeState& state) {
  const I max = fold_lanes<I>(state.signed_max, kMax);
  const I min = fold_lanes<I>(state.signed_min, kMin);
  return {static_cast<double>(min), static_cast<double>(max), min == 0 && max == 0};
}

}  // namespace

HWY_EXPORT(RangeFloat16);
HWY_EXPORT(RangeFloat32);
HWY_EXPORT(RangeInt8);
HWY_EXPORT(RangeInt32);
HWY_EXPORT(CountEqual1);
HWY_EXPORT(CountEqual2);
HWY_EXPORT(CountEqual4);
HWY_EXPORT(CountEqual8);

bool has_range_kernel(DType dtype) noexcept { return dtype != DType::kFloat64; }

void reset_range(DType dtype, RangeState& state) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return reset_lanes<std::int16_t>(state);
    case DType::kInt8:
      return reset_lanes<std::int8_t>(state);
    default:
      return reset_lanes<std::int32_t>(state);
  }
}

TileFlags accumulate_range(DType dtype, const Tile& tile, RangeState* state) {
  switch (dtype) {
    case DType::kFloat16:
      return HWY_DYNAMIC_DISPATCH(RangeFloat16)(tile, state);
    case DType::kFloat32:
      return HWY_DYNAMIC_DISPATCH(RangeFloat32)(tile, state);
    case DType::kInt8:
      return HWY_DYNAMIC_DISPATCH(RangeInt8)(tile, state);
    default:
      return HWY_DYNAMIC_DISPATCH(RangeInt32)(tile, state);
  }
}

Extremes reduce_range(DType dtype, const RangeState& state) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return reduce_float<std::uint16_t>(state,
                                         [](std::uint16_t bits) { return static_cast<double>(half_to_float(bits)); });
    case DType::kFloat32:
      return reduce_float<std::uint32_t>(
          state, [](std::uint32_t bits) { return static_cast<double>(std::bit_cast<float>(bits)); });
    case DType::kInt8:
      return reduce_integer<std::int8_t>(state);
    default:
      return reduce_integer<std::int32_t>(state);
  }
}

std::int64_t count_equal(std::size_t element_byte_count, const Tile& tile, std::uint64_t pattern) {
  switch (element_byte_count) {
    case 1:
      return HWY_DYNAMIC_DISPATCH(CountEqual1)(tile, pattern);
    case 2:
      return HWY_DYNAMIC_DISPATCH(CountEqual2)(tile, pattern);
    case 4:
      return HWY_DYNAMIC_DISPATCH(CountEqual4)(tile, pattern);
    default:
      return HWY_DYNAMIC_DISPATCH(CountEqual8)(tile, pattern);
  }
}

}  // namespace kvbacking
#endif
