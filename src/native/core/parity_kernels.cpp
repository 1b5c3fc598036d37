#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/parity_kernels.cpp"
#include "core/targets.h"  // before Highway
//
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/element.h"
#include "core/parity_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kvbacking::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr std::int64_t kCacheLine = 64;
constexpr std::size_t kMaxLanes = 16;

// Without the instruction (see convert.cpp) halves are widened one by one: correct, and rare in this decade.
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
#define KVB_HAS_HALF_INSTRUCTION 1
#else
#define KVB_HAS_HALF_INSTRUCTION 0
#endif

struct HalfSource {
  static constexpr std::int64_t kSize = 2;
  static HWY_INLINE VF Load(DF d, const std::byte* bytes) {
#if KVB_HAS_HALF_INSTRUCTION
    const hn::Rebind<std::uint16_t, DF> du;
    const hn::Rebind<hwy::float16_t, DF> dh;
    return hn::PromoteTo(d, hn::BitCast(dh, hn::LoadU(du, reinterpret_cast<const std::uint16_t*>(bytes))));
#else
    HWY_ALIGN float values[kMaxLanes];
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) values[i] = Float16Element::read(bytes + i * 2);
    return hn::Load(d, values);
#endif
  }
};

struct FloatSource {
  static constexpr std::int64_t kSize = 4;
  static HWY_INLINE VF Load(DF d, const std::byte* bytes) {
    return hn::LoadU(d, reinterpret_cast<const float*>(bytes));
  }
};

#undef KVB_HAS_HALF_INSTRUCTION

// The ragged end of a row as a vector of values and zeros: zeros on both sides add nothing and cross no threshold.
template <class Source>
HWY_INLINE VF LoadPart(DF d, const std::byte* bytes, std::int64_t count) {
  alignas(64) std::byte padded[kMaxLanes * 4] = {};
  std::memcpy(padded, bytes, static_cast<std::size_t>(count * Source::kSize));
  return Source::Load(d, padded);
}

// Asks for what lies `distance` bytes behind these elements. Only an address: it may lie past the array.
template <class Source>
HWY_INLINE void Prefetch(const std::byte* elements, std::int64_t count, std::int64_t distance) {
  if (distance == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(elements) + static_cast<std::uintptr_t>(distance);
  for (std::int64_t byte = 0; byte < count * Source::kSize; byte += kCacheLine) {
    __builtin_prefetch(reinterpret_cast<const void*>(address + static_cast<std::uintptr_t>(byte)));
  }
}

template <class A, class B, class Step>
HWY_INLINE void ForEachPair(DF d, const Tile& a, const Tile& b, std::int64_t prefetch_a, std::int64_t prefetch_b,
                            const Step& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kUnroll = 4;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::byte* HWY_RESTRICT pa = a.data + row * a.row_stride;
    const std::byte* HWY_RESTRICT pb = b.data + row * b.row_stride;
    std::int64_t i = 0;
    for (; i + kUnroll * lanes <= a.row_length; i += kUnroll * lanes) {
      Prefetch<A>(pa + i * A::kSize, kUnroll * lanes, prefetch_a);
      Prefetch<B>(pb + i * B::kSize, kUnroll * lanes, prefetch_b);
      for (std::int64_t k = 0; k < kUnroll; ++k) {
        const std::int64_t at = i + k * lanes;
        step(static_cast<int>(k % 2), A::Load(d, pa + at * A::kSize), B::Load(d, pb + at * B::kSize));
      }
    }
    for (; i + lanes <= a.row_length; i += lanes) {
      step(0, A::Load(d, pa + i * A::kSize), B::Load(d, pb + i * B::kSize));
    }
    const std::int64_t left = a.row_length - i;
    if (left > 0) step(0, LoadPart<A>(d, pa + i * A::kSize, left), LoadPart<B>(d, pb + i * B::kSize, left));
  }
}

template <class A, class B>
ParityTile Parity(const Tile& a, const Tile& b, const ParityThresholds& thresholds, std::int64_t prefetch_a,
                  std::int64_t prefetch_b) {
  const DF d;
  struct Lane {
    VF error, dot, aa, bb, worst, rel, tol;
  };
  const VF zero = hn::Zero(d);
  const VF none = hn::Set(d, -1.0f);
  Lane lane0{zero, zero, zero, zero, zero, none, none};
  Lane lane1 = lane0;
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
  constexpr float kSlack = 1.0f;  // fused: the sign of d - r * |b| is exact
#else
  constexpr float kSlack = 1.0f - 0x1p-20f;
#endif
  const VF rel_seen = hn::Set(d, thresholds.max_rel_seen * kSlack);
  const VF tolerance_rel = hn::Set(d, thresholds.tolerance_rel * (1.0f - 0x1p-20f));
  ForEachPair<A, B>(d, a, b, prefetch_a, prefetch_b, [&](int half, VF va, VF vb) HWY_ATTR {
    Lane& lane = half == 0 ? lane0 : lane1;
    const VF error = hn::Abs(hn::Sub(va, vb));
    const VF magnitude = hn::Abs(vb);
    lane.error = hn::Add(lane.error, error);
    lane.worst = hn::Max(lane.worst, error);
    lane.rel = hn::Max(lane.rel, hn::NegMulAdd(rel_seen, magnitude, error));
    lane.tol = hn::Max(lane.tol, hn::NegMulAdd(tolerance_rel, magnitude, error));
    lane.dot = hn::MulAdd(va, vb, lane.dot);
    lane.aa = hn::MulAdd(va, va, lane.aa);
    lane.bb = hn::MulAdd(vb, vb, lane.bb);
  });

  HWY_ALIGN float lanes[kMaxLanes];
  const auto sum = [&](VF x, VF y) HWY_ATTR {
    hn::Store(hn::Add(x, y), d, lanes);
    double total = 0;
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) total += static_cast<double>(lanes[i]);
    return total;
  };
  ParityTile tile;
  tile.sums = {sum(lane0.error, lane1.error), sum(lane0.dot, lane1.dot), sum(lane0.aa, lane1.aa),
               sum(lane0.bb, lane1.bb)};
  hn::Store(hn::Max(lane0.worst, lane1.worst), d, lanes);
  tile.max_abs_error = *std::max_element(lanes, lanes + hn::Lanes(d));
  tile.plain = std::isfinite(tile.sums.abs_error) && std::isfinite(tile.sums.dot) &&
               std::isfinite(tile.sums.a_squared) && std::isfinite(tile.sums.b_squared);
  tile.may_exceed_rel = !hn::AllFalse(d, hn::Gt(hn::Max(lane0.rel, lane1.rel), zero));
  const VF tolerance_abs = hn::Set(d, thresholds.tolerance_abs * (1.0f - 0x1p-20f));
  tile.may_exceed_tolerance = !hn::AllFalse(d, hn::Gt(hn::Max(lane0.tol, lane1.tol), tolerance_abs));
  return tile;
}

template <class A, class B>
std::int64_t CountAbove(const Tile& a, const Tile& b, float limit) {
  const DF d;
  const VF limits = hn::Set(d, limit);
  std::size_t count = 0;
  ForEachPair<A, B>(d, a, b, 0, 0, [&](int, VF va, VF vb) HWY_ATTR {
    count += hn::CountTrue(d, hn::Gt(hn::Abs(hn::Sub(va, vb)), limits));
  });
  return static_cast<std::int64_t>(count);
}

#define KVB_PARITY_PAIR(NAME, A, B)                                                                                  \
  ParityTile Parity##NAME(const Tile& a, const Tile& b, const ParityThresholds& thresholds, std::int64_t prefetch_a, \
                          std::int64_t prefetch_b) {                                                                 \
    return Parity<A, B>(a, b, thresholds, prefetch_a, prefetch_b);                                                   \
  }                                                                                                                  \
  std::int64_t CountAbove##NAME(const Tile& a, const Tile& b, float limit) { return CountAbove<A, B>(a, b, limit); }
KVB_PARITY_PAIR(HalfHalf, HalfSource, HalfSource)
KVB_PARITY_PAIR(HalfFloat, HalfSource, FloatSource)
KVB_PARITY_PAIR(FloatHalf, FloatSource, HalfSource)
KVB_PARITY_PAIR(FloatFloat, FloatSource, FloatSource)
#undef KVB_PARITY_PAIR

}  // namespace kvbacking::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbacking {

HWY_EXPORT(ParityHalfHalf);
HWY_EXPORT(ParityHalfFloat);
HWY_EXPORT(ParityFloatHalf);
HWY_EXPORT(ParityFloatFloat);
HWY_EXPORT(CountAboveHalfHalf);
HWY_EXPORT(CountAboveHalfFloat);
HWY_EXPORT(CountAboveFloatHalf);
HWY_EXPORT(CountAboveFloatFloat);

ParityTile parity_tile(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, const ParityThresholds& thresholds,
                       std::int64_t prefetch_a, std::int64_t prefetch_b) {
  const bool a_half = a_dtype == DType::kFloat16;
  const bool b_half = b_dtype == DType::kFloat16;
  if (a_half && b_half) return HWY_DYNAMIC_DISPATCH(ParityHalfHalf)(a, b, thresholds, prefetch_a, prefetch_b);
  if (a_half) return HWY_DYNAMIC_DISPATCH(ParityHalfFloat)(a, b, thresholds, prefetch_a, prefetch_b);
  if (b_half) return HWY_DYNAMIC_DISPATCH(ParityFloatHalf)(a, b, thresholds, prefetch_a, prefetch_b);
  return HWY_DYNAMIC_DISPATCH(ParityFloatFloat)(a, b, thresholds, prefetch_a, prefetch_b);
}

std::int64_t count_above(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float limit) {
  const bool a_half = a_dtype == DType::kFloat16;
  const bool b_half = b_dtype == DType::kFloat16;
  if (a_half && b_half) return HWY_DYNAMIC_DISPATCH(CountAboveHalfHalf)(a, b, limit);
  if (a_half) return HWY_DYNAMIC_DISPATCH(CountAboveHalfFloat)(a, b, limit);
  if (b_half) return HWY_DYNAMIC_DISPATCH(CountAboveFloatHalf)(a, b, limit);
  return HWY_DYNAMIC_DISPATCH(CountAboveFloatFloat)(a, b, limit);
}

}  // namespace kvbacking
#endif
