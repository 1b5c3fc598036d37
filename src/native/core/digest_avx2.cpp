#if defined(__x86_64__)
#include "core/digest_updates.h"

// Everything shared with other translation units is included before the target attribute is pushed: an inline
// function compiled for AVX2 here could otherwise be the copy that the linker keeps for everybody.
#include <immintrin.h>
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#define XXH_VECTOR 2  // XXH_AVX2, whose name exists only inside the header
#include <xxhash.h>

namespace kvbacking {

void digest_update_avx2(void* state, const void* bytes, std::size_t byte_count) noexcept {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state), bytes, byte_count);
}

}  // namespace kvbacking
#pragma clang attribute pop
#endif
