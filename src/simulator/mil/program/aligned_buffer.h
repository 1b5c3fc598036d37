// Uninitialised memory on a cache-line boundary.
// Threads: as a unique_ptr.
// Ownership: owns its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace coremlsim::mil {

constexpr std::int64_t kAlignment = 64;

inline std::int64_t align_up(std::int64_t bytes) noexcept { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

struct FreeDeleter {
  void operator()(void* p) const noexcept { std::free(p); }
};
using AlignedBuffer = std::unique_ptr<void, FreeDeleter>;

inline AlignedBuffer allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(align_up(bytes > 0 ? bytes : 1));
  void* p = std::aligned_alloc(static_cast<std::size_t>(kAlignment), size);
  if (!p) throw std::bad_alloc();
  return AlignedBuffer(p);
}

}  // namespace coremlsim::mil
