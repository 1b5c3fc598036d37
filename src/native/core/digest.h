// XXH3-128 of a byte stream, with the widest kernel this processor has. Core-internal.
// Threads: one Digest per thread. Ownership: values only; the result does not depend on how updates are cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace kvbacking {

using DigestBytes = std::array<std::uint8_t, 16>;

class Digest {
 public:
  Digest() noexcept;
  void update(const void* bytes, std::size_t byte_count) noexcept { update_(state_, bytes, byte_count); }
  DigestBytes canonical() const noexcept;  // the form xxhsum prints, big-endian

 private:
  using Update = void (*)(void* state, const void* bytes, std::size_t byte_count) noexcept;
  alignas(64) std::byte state_[640];  // holds an XXH3_state_t
  Update update_;
};

}  // namespace kvbacking
