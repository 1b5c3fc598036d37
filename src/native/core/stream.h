// Copies whose destination does not go through the caches: for more bytes than fit there, and that nobody reads next.
// Core-internal.
// Threads: pure functions. Ownership: none.
#pragma once

#include <cstddef>

namespace kvbacking {

using StreamBytes = void (*)(const std::byte* source, std::byte* destination, std::size_t byte_count);
// The widest one that this processor has. After the last call stream_fence() makes the bytes visible to everybody.
StreamBytes stream_bytes() noexcept;
void stream_fence() noexcept;

}  // namespace kvbacking
