// Page-aligned memory we own, with a canary page before the payload and canary bytes after it.
// Threads: create/arm/check from one thread at a time per allocation; the destructor may run on any thread, takes no
// lock and touches no Python object.
// Ownership: shared_ptr; the destructor frees the allocation's base (not the payload's address) exactly once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace kvbacking {

// The first canary byte that no longer holds the pattern: offset from the payload's first byte (negative: before it).
struct CanaryDamage {
  std::int64_t offset;
  std::uint8_t expected;
  std::uint8_t actual;
};

class Allocation {
 public:
  // kHeap: fast to make again, and what dies may stay with the process. kSystem: goes back to the system at once, for
  // memory that is made in bursts.
  enum class Origin { kHeap, kSystem };
  // Payload of `byte_count` bytes, base and size rounded to granularity(), zeros: nothing this process wrote before.
  // Throws Error(kAllocation) naming the bytes asked for.
  static std::shared_ptr<Allocation> create(std::size_t byte_count, Origin origin = Origin::kHeap);
  ~Allocation();
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;

  std::byte* payload() const noexcept { return payload_; }
  std::size_t byte_count() const noexcept { return byte_count_; }

  // Fills the canaries with a pattern derived from `seed` (a new one per prediction).
  void arm_canaries(std::uint64_t seed) noexcept;
  // Empty when every canary byte holds the pattern last armed; arm first.
  std::optional<CanaryDamage> check_canaries() const noexcept;

  static std::size_t granularity() noexcept;  // max(page size, 16384)
  static std::int64_t live_count() noexcept;
  static std::int64_t created_count() noexcept;       // since the process began
  static std::int64_t created_byte_count() noexcept;  // canaries and padding included
  // Test hook: the nth next create() fails as an exhausted system would (0: never).
  static void fail_nth_create(std::uint64_t n) noexcept;

 private:
  Allocation() noexcept;
  Origin origin_ = Origin::kHeap;
  std::byte* base_ = nullptr;
  std::byte* payload_ = nullptr;
  std::size_t byte_count_ = 0;
  std::size_t total_byte_count_ = 0;
  std::uint64_t canary_seed_ = 0;
};

}  // namespace kvbacking
