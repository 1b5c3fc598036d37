#include "kvbacking/allocation.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>

#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::size_t kMinimumGranularity = 16384;  // Apple silicon's page; also used where pages are smaller
constexpr std::size_t kWord = sizeof(std::uint64_t);

std::atomic<std::int64_t> g_live_count{0}, g_created_count{0}, g_created_byte_count{0};
std::atomic<std::uint64_t> g_creates_until_failure{0};

[[noreturn]] void throw_allocation_error(std::size_t byte_count, const char* reason) {
  const auto shown = static_cast<std::int64_t>(
      std::min<std::size_t>(byte_count, static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())));
  throw Error(ErrorCode::kAllocation,
              "[allocation] cannot allocate a backing of " + std::to_string(byte_count) + " bytes: " + reason,
              {{"byte_count", shown}});
}

bool must_fail() noexcept {
  std::uint64_t left = g_creates_until_failure.load(std::memory_order_relaxed);
  while (left != 0) {
    if (g_creates_until_failure.compare_exchange_weak(left, left - 1)) return left == 1;
  }
  return false;
}

// splitmix64's finaliser, once per seed: neighbouring seeds must not give neighbouring patterns.
std::uint64_t scramble(std::uint64_t seed) noexcept {
  seed = (seed ^ (seed >> 30)) * 0xBF58476D1CE4E5B9u;
  seed = (seed ^ (seed >> 27)) * 0x94D049BB133111EBu;
  return seed ^ (seed >> 31);
}

// The pattern's word number `index` (8-byte words from the allocation's base): a Weyl step folded once. Adds, shifts
// and xors only, so that the loops below vectorise on every target: canaries are armed on every prediction.
std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t index) noexcept {
  const std::uint64_t step = seed + index * 0x9E3779B97F4A7C15u;
  return step ^ (step >> 29);
}

std::uint8_t pattern_byte(std::uint64_t seed, std::size_t offset) noexcept {
  const std::uint64_t word = pattern_word(seed, offset / kWord);
  std::uint8_t bytes[kWord];
  std::memcpy(bytes, &word, kWord);
  return bytes[offset % kWord];
}

// Splits [begin, end) into a ragged head and whole words; the end is always word-aligned (it is page-aligned).
std::size_t first_whole_word(std::size_t begin, std::size_t end) noexcept {
  return std::min((begin + kWord - 1) / kWord * kWord, end);
}

void fill_pattern(std::byte* base, std::size_t begin, std::size_t end, std::uint64_t seed) noexcept {
  const std::size_t words_begin = first_whole_word(begin, end);
  for (std::size_t i = begin; i < words_begin; ++i) base[i] = std::byte{pattern_byte(seed, i)};
  auto* words = reinterpret_cast<std::uint64_t*>(base);
  for (std::size_t w = words_begin / kWord; w < end / kWord; ++w) words[w] = pattern_word(seed, w);
}

// Offset of the first byte in [begin, end) that differs from the pattern, or `end`.
std::size_t find_damage(const std::byte* base, std::size_t begin, std::size_t end, std::uint64_t seed) noexcept {
  const std::size_t words_begin = first_whole_word(begin, end);
  const auto* words = reinterpret_cast<const std::uint64_t*>(base);
  std::uint64_t differences = 0;
  for (std::size_t i = begin; i < words_begin; ++i) {
    differences |= std::to_integer<std::uint64_t>(base[i]) ^ pattern_byte(seed, i);
  }
  for (std::size_t w = words_begin / kWord; w < end / kWord; ++w) differences |= words[w] ^ pattern_word(seed, w);
  if (differences == 0) return end;
  for (std::size_t i = begin; i < end; ++i) {
    if (std::to_integer<std::uint8_t>(base[i]) != pattern_byte(seed, i)) return i;
  }
  return end;
}

// Pages of the system's own, at a multiple of `alignment`; null with errno set. What was mapped too much is unmapped.
std::byte* map_pages(std::size_t byte_count, std::size_t alignment) {
  const std::size_t slack = alignment - std::min(alignment, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  void* const mapped = mmap(nullptr, byte_count + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t skipped = (alignment - reinterpret_cast<std::uintptr_t>(begin) % alignment) % alignment;
  if (skipped > 0) munmap(begin, skipped);
  if (slack > skipped) munmap(begin + skipped + byte_count, slack - skipped);
  return begin + skipped;
}

}  // namespace

std::shared_ptr<Allocation> Allocation::create(std::size_t byte_count, Origin origin) {
  const std::size_t page = granularity();
  // ptrdiff_t bounds what pointer arithmetic can address.
  const auto limit = static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max()) - 3 * page;
  if (byte_count > limit) throw_allocation_error(byte_count, "more than the address space");
  if (must_fail()) throw_allocation_error(byte_count, "posix_memalign failed (injected)");

  const std::size_t payload_pages = (byte_count + page - 1) / page * page;
  std::shared_ptr<Allocation> allocation(new Allocation);
  allocation->origin_ = origin;
  if (origin == Origin::kSystem) {
    allocation->base_ = map_pages(page + payload_pages + page, page);
    if (allocation->base_ == nullptr) throw_allocation_error(byte_count, std::strerror(errno));
  } else {
    void* base = nullptr;
    const int status = posix_memalign(&base, page, page + payload_pages + page);
    if (status != 0) throw_allocation_error(byte_count, std::strerror(status));
    allocation->base_ = static_cast<std::byte*>(base);
    std::memset(allocation->base_ + page, 0, payload_pages);
  }
  allocation->payload_ = allocation->base_ + page;
  allocation->byte_count_ = byte_count;
  allocation->total_byte_count_ = page + payload_pages + page;
  g_created_count.fetch_add(1, std::memory_order_relaxed);
  g_created_byte_count.fetch_add(static_cast<std::int64_t>(allocation->total_byte_count_), std::memory_order_relaxed);
  return allocation;
}

Allocation::Allocation() noexcept { g_live_count.fetch_add(1, std::memory_order_relaxed); }

Allocation::~Allocation() {
  if (origin_ == Origin::kHeap) {
    std::free(base_);
  } else if (base_ != nullptr) {
    munmap(base_, total_byte_count_);
  }
  g_live_count.fetch_sub(1, std::memory_order_relaxed);
}

void Allocation::arm_canaries(std::uint64_t seed) noexcept {
  canary_seed_ = scramble(seed + 1);
  const auto payload_begin = static_cast<std::size_t>(payload_ - base_);
  fill_pattern(base_, 0, payload_begin, canary_seed_);
  fill_pattern(base_, payload_begin + byte_count_, total_byte_count_, canary_seed_);
}

std::optional<CanaryDamage> Allocation::check_canaries() const noexcept {
  const auto payload_begin = static_cast<std::size_t>(payload_ - base_);
  std::size_t damaged = find_damage(base_, 0, payload_begin, canary_seed_);
  if (damaged == payload_begin) {
    damaged = find_damage(base_, payload_begin + byte_count_, total_byte_count_, canary_seed_);
    if (damaged == total_byte_count_) return std::nullopt;
  }
  return CanaryDamage{static_cast<std::int64_t>(damaged) - static_cast<std::int64_t>(payload_begin),
                      pattern_byte(canary_seed_, damaged), std::to_integer<std::uint8_t>(base_[damaged])};
}

std::size_t Allocation::granularity() noexcept {
  static const std::size_t value = std::max(kMinimumGranularity, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return value;
}

std::int64_t Allocation::live_count() noexcept { return g_live_count.load(std::memory_order_relaxed); }
std::int64_t Allocation::created_count() noexcept { return g_created_count.load(std::memory_order_relaxed); }
std::int64_t Allocation::created_byte_count() noexcept { return g_created_byte_count.load(std::memory_order_relaxed); }

void Allocation::fail_nth_create(std::uint64_t n) noexcept { g_creates_until_failure.store(n); }

}  // namespace kvbacking
