// One fp16 value to and from fp32 in integer arithmetic: for odd elements and for targets without the instruction.
// Threads: pure functions. Ownership: none.
#pragma once

#include <bit>
#include <cstdint>

namespace kvbacking {

// Exact. Branches only on inputs that are rare in tensors.
inline float half_to_float(std::uint16_t half) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t magnitude = half & 0x7FFFu;
  if (magnitude >= 0x7C00u) return std::bit_cast<float>(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  if (magnitude >= 0x0400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  // Subnormal: magnitude * 2^-24 is exact in fp32.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
}

// Round to nearest, ties to even; overflow becomes infinity; a NaN keeps its upper payload bits and becomes quiet.
inline std::uint16_t float_to_half(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  std::uint32_t half = 0;
  if (magnitude > 0x7F800000u) {
    half = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x47800000u) {  // 65536 and up, infinity included
    half = 0x7C00u;
  } else if (magnitude >= 0x38800000u) {  // normal in fp16; a carry out of the mantissa correctly reaches the exponent
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - 0x38000000u + 0x0FFFu + odd) >> 13;
  } else {
    // Adding 0.5 makes the unit of the fp32 mantissa 2^-24, so the processor does the rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace kvbacking
