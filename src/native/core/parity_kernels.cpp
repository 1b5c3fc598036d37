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

// For loops over one array.
struct NoSource {
  static constexpr std::int64_t kSize = 0;
  static HWY_INLINE VF Load(DF d, const std::byte*) { return hn::Zero(d); }
};

// The ragged end of a row as a vector of values and zeros: zeros on both sides add nothing and cross no threshold.
template <class Source>
HWY_INLINE VF LoadPart(DF d, const std::byte* bytes, std::int64_t count) {
  alignas(64) std::byte padded[kMaxLanes * 4] = {};
  std::memcpy(padded, bytes, static_cast<std::size_t>(count * Source::kSize));
  return Source::Load(d, padded);
}

template <class A, class B, class Step>
HWY_INLINE void ForEachPair(DF d, const Tile& a, const Tile& b, const Step& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr std::int64_t kUnroll = 4;
  for (std::int64_t row = 0; row < a.rows; ++row) {
    const std::byte* HWY_RESTRICT pa = a.data + row * a.row_stride;
    const std::byte* HWY_RESTRICT pb = b.data + row * b.row_stride;
    std::int64_t i = 0;
    for (; i + kUnroll * lanes <= a.row_length; i += kUnroll * lanes) {
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

// What one of two interleaved accumulators holds. The sign bit of `rel` is set once max_rel_seen was exceeded: or-ing
// signs is cheaper than comparing.
struct ParityLanes {
  VF error, dot, aa, bb, worst, rel;
};

// Slack for the targets without a fused multiply-add: the sign of r * |b| - error is exact only with one.
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
constexpr float kSlack = 1.0f;
#else
constexpr float kSlack = 1.0f - 0x1p-20f;
#endif

HWY_INLINE bool AnySign(VF v) {
  const hn::RebindToSigned<DF> di;
  return !hn::AllFalse(di, hn::Lt(hn::BitCast(di, v), hn::Zero(di)));
}

template <class A, class B>
ParityTile Parity(const Tile& a, const Tile& b, float max_rel_seen) {
  const DF d;
  const VF zero = hn::Zero(d);
  ParityLanes lanes0{zero, zero, zero, zero, zero, zero};
  ParityLanes lanes1 = lanes0;
  const VF rel_seen = hn::Set(d, max_rel_seen * kSlack);
  ForEachPair<A, B>(d, a, b, [&](int half, VF va, VF vb) HWY_ATTR {
    ParityLanes& lanes = half == 0 ? lanes0 : lanes1;
    const VF error = hn::Abs(hn::Sub(va, vb));
    const VF magnitude = hn::Abs(vb);
    lanes.error = hn::Add(lanes.error, error);
    lanes.worst = hn::Max(lanes.worst, error);
    lanes.rel = hn::Or(lanes.rel, hn::MulSub(rel_seen, magnitude, error));
    lanes.dot = hn::MulAdd(va, vb, lanes.dot);
    lanes.aa = hn::MulAdd(va, va, lanes.aa);
    lanes.bb = hn::MulAdd(vb, vb, lanes.bb);
  });

  HWY_ALIGN float values[kMaxLanes];
  const auto sum = [&](VF x, VF y) HWY_ATTR {
    hn::Store(hn::Add(x, y), d, values);
    double total = 0;
    for (std::size_t i = 0; i < hn::Lanes(d); ++i) total += static_cast<double>(values[i]);
    return total;
  };
  ParityTile tile;
  tile.sums = {sum(lanes0.error, lanes1.error), sum(lanes0.dot, lanes1.dot), sum(lanes0.aa, lanes1.aa),
               sum(lanes0.bb, lanes1.bb)};
  hn::Store(hn::Max(lanes0.worst, lanes1.worst), d, values);
  tile.max_abs_error = *std::max_element(values, values + hn::Lanes(d));
  tile.plain = std::isfinite(tile.sums.abs_error) && std::isfinite(tile.sums.dot) &&
               std::isfinite(tile.sums.a_squared) && std::isfinite(tile.sums.b_squared);
  tile.may_exceed_rel = AnySign(hn::Or(lanes0.rel, lanes1.rel));
  return tile;
}

template <class Source>
ParityTile Equal(const Tile& tile) {
  const DF d;
  VF squares0 = hn::Zero(d);
  VF squares1 = squares0;
  ForEachPair<Source, NoSource>(d, tile, tile, [&](int half, VF v, VF) HWY_ATTR {
    VF& squares = half == 0 ? squares0 : squares1;
    squares = hn::MulAdd(v, v, squares);
  });
  HWY_ALIGN float values[kMaxLanes];
  hn::Store(hn::Add(squares0, squares1), d, values);
  double total = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) total += static_cast<double>(values[i]);
  ParityTile result;
  result.sums = {0.0, total, total, total};
  result.plain = std::isfinite(total);
  return result;
}

ParityTile EqualHalf(const Tile& tile) { return Equal<HalfSource>(tile); }
ParityTile EqualFloat(const Tile& tile) { return Equal<FloatSource>(tile); }

template <class A, class B>
bool MayExceed(const Tile& a, const Tile& b, float max_abs, float max_rel) {
  const DF d;
  constexpr float kDown = 1.0f - 0x1p-20f;
  const VF limit_abs = hn::Set(d, max_abs * kDown);
  const VF limit_rel = hn::Set(d, max_rel * kDown);
  VF signs = hn::Zero(d);
  ForEachPair<A, B>(d, a, b, [&](int, VF va, VF vb) HWY_ATTR {
    const VF error = hn::Abs(hn::Sub(va, vb));
    signs = hn::Or(signs, hn::MulAdd(limit_rel, hn::Abs(vb), hn::Sub(limit_abs, error)));
  });
  return AnySign(signs);
}

template <class A, class B>
std::int64_t CountAbove(const Tile& a, const Tile& b, float limit) {
  const DF d;
  const VF limits = hn::Set(d, limit);
  std::size_t count = 0;
  ForEachPair<A, B>(d, a, b, [&](int, VF va, VF vb) HWY_ATTR {
    count += hn::CountTrue(d, hn::Gt(hn::Abs(hn::Sub(va, vb)), limits));
  });
  return static_cast<std::int64_t>(count);
}

// One table entry per pair of dtypes.
#define KVB_PARITY_PAIR(NAME, A, B)                                                  \
  ParityTile Parity##NAME(const Tile& a, const Tile& b, float max_rel_seen) {        \
    return Parity<A, B>(a, b, max_rel_seen);                                         \
  }                                                                                  \
  bool MayExceed##NAME(const Tile& a, const Tile& b, float max_abs, float max_rel) { \
    return MayExceed<A, B>(a, b, max_abs, max_rel);                                  \
  }                                                                                  \
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

HWY_EXPORT(EqualHalf);
HWY_EXPORT(EqualFloat);
HWY_EXPORT(ParityHalfHalf);
HWY_EXPORT(ParityHalfFloat);
HWY_EXPORT(ParityFloatHalf);
HWY_EXPORT(ParityFloatFloat);
HWY_EXPORT(MayExceedHalfHalf);
HWY_EXPORT(MayExceedHalfFloat);
HWY_EXPORT(MayExceedFloatHalf);
HWY_EXPORT(MayExceedFloatFloat);
HWY_EXPORT(CountAboveHalfHalf);
HWY_EXPORT(CountAboveHalfFloat);
HWY_EXPORT(CountAboveFloatHalf);
HWY_EXPORT(CountAboveFloatFloat);

// NAME of the two dtypes, each float16 or float32.
#define KVB_DISPATCH_PAIR(NAME, a_dtype, b_dtype, ...)                                                            \
  (a_dtype == DType::kFloat16 ? (b_dtype == DType::kFloat16 ? HWY_DYNAMIC_DISPATCH(NAME##HalfHalf)(__VA_ARGS__)   \
                                                            : HWY_DYNAMIC_DISPATCH(NAME##HalfFloat)(__VA_ARGS__)) \
                              : (b_dtype == DType::kFloat16 ? HWY_DYNAMIC_DISPATCH(NAME##FloatHalf)(__VA_ARGS__)  \
                                                            : HWY_DYNAMIC_DISPATCH(NAME##FloatFloat)(__VA_ARGS__)))

ParityTile parity_tile(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float max_rel_seen) {
  return KVB_DISPATCH_PAIR(Parity, a_dtype, b_dtype, a, b, max_rel_seen);
}

ParityTile equal_tile(DType dtype, const Tile& tile) {
  return dtype == DType::kFloat16 ? HWY_DYNAMIC_DISPATCH(EqualHalf)(tile) : HWY_DYNAMIC_DISPATCH(EqualFloat)(tile);
}

bool may_exceed(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float max_abs, float max_rel) {
  return KVB_DISPATCH_PAIR(MayExceed, a_dtype, b_dtype, a, b, max_abs, max_rel);
}

std::int64_t count_above(DType a_dtype, const Tile& a, DType b_dtype, const Tile& b, float limit) {
  return KVB_DISPATCH_PAIR(CountAbove, a_dtype, b_dtype, a, b, limit);
}

#undef KVB_DISPATCH_PAIR
}  // namespace kvbacking
#endif
