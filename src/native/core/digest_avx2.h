// The AVX2 build of xxHash's streaming update (x86-64 only). Core-internal; callers check the processor first.
// Threads: any, one state per thread. Ownership: none; `state` is an initialised XXH3_state_t.
#pragma once

#include <cstddef>

namespace kvbacking {

void digest_update_avx2(void* state, const void* bytes, std::size_t byte_count) noexcept;

}  // namespace kvbacking
