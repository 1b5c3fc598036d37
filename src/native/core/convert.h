// Rows of fp16 <-> fp32, round to nearest even, subnormals kept, NaN stays NaN. Core-internal.
// Threads: pure functions. Ownership: none; source and destination must not overlap; no alignment is needed.
#pragma once

#include <cstddef>

namespace kvbacking {

void convert_fp16_to_fp32(const void* source, void* destination, std::size_t count);
void convert_fp32_to_fp16(const void* source, void* destination, std::size_t count);

}  // namespace kvbacking
