#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/convert.cpp"
#include "core/targets.h"  // before Highway
//
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/convert.h"
#include "core/half.h"

HWY_BEFORE_NAMESPACE();
namespace kvbacking::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highway emulates the conversion on older x86 and truncates there; only the instruction rounds to nearest even.
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
#define KVB_HAS_HALF_INSTRUCTION 1
#else
#define KVB_HAS_HALF_INSTRUCTION 0
#endif

template <typename T>
T* at(std::byte* base, std::size_t index) {
  return reinterpret_cast<T*>(base + index * sizeof(T));
}
template <typename T>
const T* at(const std::byte* base, std::size_t index) {
  return reinterpret_cast<const T*>(base + index * sizeof(T));
}

void Fp16ToFp32(const std::byte* HWY_RESTRICT source, std::byte* HWY_RESTRICT destination, std::size_t count) {
  std::size_t i = 0;
#if KVB_HAS_HALF_INSTRUCTION
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> du;
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto half = hn::BitCast(dh, hn::LoadU(du, at<std::uint16_t>(source, i)));
    hn::StoreU(hn::PromoteTo(df, half), df, at<float>(destination, i));
  }
#endif
  for (; i < count; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, source + i * sizeof half, sizeof half);
    const float value = half_to_float(half);
    std::memcpy(destination + i * sizeof value, &value, sizeof value);
  }
}

void Fp32ToFp16(const std::byte* HWY_RESTRICT source, std::byte* HWY_RESTRICT destination, std::size_t count) {
  std::size_t i = 0;
#if KVB_HAS_HALF_INSTRUCTION
  const hn::ScalableTag<float> df;
  const hn::Rebind<std::uint16_t, decltype(df)> du;
  const hn::Rebind<hwy::float16_t, decltype(df)> dh;
  for (; i + hn::Lanes(df) <= count; i += hn::Lanes(df)) {
    const auto half = hn::DemoteTo(dh, hn::LoadU(df, at<float>(source, i)));
    hn::StoreU(hn::BitCast(du, half), du, at<std::uint16_t>(destination, i));
  }
#endif
  for (; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, source + i * sizeof value, sizeof value);
    const std::uint16_t half = float_to_half(value);
    std::memcpy(destination + i * sizeof half, &half, sizeof half);
  }
}

#undef KVB_HAS_HALF_INSTRUCTION
}  // namespace kvbacking::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbacking {

HWY_EXPORT(Fp16ToFp32);
HWY_EXPORT(Fp32ToFp16);

void convert_fp16_to_fp32(const void* source, void* destination, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Fp16ToFp32)(static_cast<const std::byte*>(source), static_cast<std::byte*>(destination), count);
}

void convert_fp32_to_fp16(const void* source, void* destination, std::size_t count) {
  HWY_DYNAMIC_DISPATCH(Fp32ToFp16)(static_cast<const std::byte*>(source), static_cast<std::byte*>(destination), count);
}

}  // namespace kvbacking
#endif
