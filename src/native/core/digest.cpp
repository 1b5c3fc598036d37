#include "core/digest.h"

#include <cstring>
#include <new>

#include "core/digest_avx2.h"
#include "core/targets.h"
// After targets.h.
#include <hwy/targets.h>
#include <xxhash.h>

namespace kvbacking {
namespace {

static_assert(alignof(XXH3_state_t) <= 64);

void update_baseline(void* state, const void* bytes, std::size_t byte_count) noexcept {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state), bytes, byte_count);
}

}  // namespace

Digest::Digest() noexcept : update_(update_baseline) {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_));
  XXH3_128bits_reset(new (state_) XXH3_state_t);
#if defined(__x86_64__)
  // xxHash chooses at compile time, and the baseline is SSE2. AVX-512 was measured slower than AVX2 here.
  if ((hwy::SupportedTargets() & (HWY_AVX2 | HWY_AVX3)) != 0) update_ = digest_update_avx2;
#endif
}

std::array<std::uint8_t, 16> Digest::canonical() const noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_)));
  std::array<std::uint8_t, 16> bytes{};
  static_assert(sizeof canonical.digest == sizeof bytes);
  std::memcpy(bytes.data(), canonical.digest, bytes.size());
  return bytes;
}

}  // namespace kvbacking
