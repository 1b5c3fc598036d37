#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/digest.cpp"
#include "core/targets.h"  // before Highway
//
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <new>

#include "core/digest.h"
#include "core/digest_updates.h"

HWY_BEFORE_NAMESPACE();
namespace kvbacking::HWY_NAMESPACE {

// xxHash chooses at compile time, so Highway's choice picks the build. AVX-512 was measured slower than AVX2.
DigestUpdate* ChooseUpdate() {
#if defined(__x86_64__) && HWY_TARGET <= HWY_AVX2
  return digest_update_avx2;
#else
  return digest_update_baseline;
#endif
}

}  // namespace kvbacking::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <xxhash.h>

namespace kvbacking {

HWY_EXPORT(ChooseUpdate);

static_assert(alignof(XXH3_state_t) <= 64);

void digest_update_baseline(void* state, const void* bytes, std::size_t byte_count) noexcept {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state), bytes, byte_count);
}

Digest::Digest() noexcept : update_(HWY_DYNAMIC_DISPATCH(ChooseUpdate)()) {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_));
  XXH3_128bits_reset(new (state_) XXH3_state_t);
}

DigestBytes Digest::canonical() const noexcept {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(reinterpret_cast<const XXH3_state_t*>(state_)));
  DigestBytes bytes{};
  static_assert(sizeof canonical.digest == sizeof bytes);
  std::memcpy(bytes.data(), canonical.digest, bytes.size());
  return bytes;
}

}  // namespace kvbacking
#endif
