// The builds of xxHash's streaming update. Core-internal; the AVX2 one exists on x86-64 and needs the processor.
// Threads: any, one state per thread. Ownership: none; `state` is an initialised XXH3_state_t.
#pragma once

#include <cstddef>

namespace kvbacking {

using DigestUpdate = void(void* state, const void* bytes, std::size_t byte_count) noexcept;
DigestUpdate digest_update_baseline;
DigestUpdate digest_update_avx2;

}  // namespace kvbacking
