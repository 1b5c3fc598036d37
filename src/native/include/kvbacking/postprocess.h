// Float16 to float32 over accepted bytes: Apple's vImage where there is one, else our own vectorised conversion.
// Threads: pure functions on caller memory. Ownership: none.
#pragma once

#include <cstddef>

namespace kvbacking {

const char* half_conversion_engine() noexcept;  // "vImage" | "Highway"
// Dense rows of `columns` elements. Throws Error(kInvalidArgument) when the engine refuses.
void convert_half_to_float(const void* source, float* destination, std::size_t rows, std::size_t columns);

}  // namespace kvbacking
