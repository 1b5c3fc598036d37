#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <thread>

#include "core_support.h"
#include "kvbacking/allocation.h"
#include "kvbacking/error.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {
ErrorCode create_error(std::size_t byte_count, std::string* message = nullptr) {
  try {
    (void)Allocation::create(byte_count);
  } catch (const Error& error) {
    if (message != nullptr) *message = error.message();
    return error.code();
  }
  FAIL("no error was thrown");
  return ErrorCode::kModel;
}
}  // namespace

TEST_CASE("the payload is page-aligned, writable and never a canary") {
  CHECK(Allocation::granularity() % 16384 == 0);
  for (const std::size_t byte_count : std::initializer_list<std::size_t>{0, 1, 7, 8, 16383, 16384, 16385, 1000003}) {
    const auto allocation = Allocation::create(byte_count);
    CHECK(allocation->byte_count() == byte_count);
    CHECK(reinterpret_cast<std::uintptr_t>(allocation->payload()) % Allocation::granularity() == 0);
    allocation->arm_canaries(byte_count * 31);
    std::memset(allocation->payload(), 0x5A, byte_count);
    CHECK_FALSE(allocation->check_canaries().has_value());
    allocation->arm_canaries(12);
    for (std::size_t i = 0; i < byte_count; ++i) {
      if (allocation->payload()[i] != std::byte{0x5A}) FAIL("arming wrote into the payload at " << i);
    }
  }
}

TEST_CASE("a payload starts as zeros, whatever the heap held there before") {
  for (const auto origin : {Allocation::Origin::kHeap, Allocation::Origin::kSystem}) {
    for (int round = 0; round < 4; ++round) {
      const auto allocation = Allocation::create(3 * 4096 + 5, origin);
      std::byte* const bytes = allocation->payload();
      CHECK(std::all_of(bytes, bytes + allocation->byte_count(), [](std::byte byte) { return byte == std::byte{}; }));
      std::memset(bytes, 0xA5, allocation->byte_count());
    }
  }
}

TEST_CASE("every canary byte is watched, from the payload's last byte on") {
  const std::size_t page = Allocation::granularity();
  const auto last = static_cast<std::int64_t>(page);
  for (const std::size_t byte_count : std::initializer_list<std::size_t>{1, 13, 4096, 16384}) {
    const auto allocation = Allocation::create(byte_count);
    const auto size = static_cast<std::int64_t>(byte_count);
    const std::int64_t end = static_cast<std::int64_t>((byte_count + page - 1) / page * page + page);
    allocation->arm_canaries(99);
    std::vector<std::int64_t> offsets = {-last,    -last + 1, -9,       -8,       -1,     size,
                                         size + 1, size + 7,  size + 8, size + 9, end - 1};
    Random random(byte_count);
    for (int i = 0; i < 50; ++i) offsets.push_back(random.between(size, end - 1));
    for (const std::int64_t offset : offsets) {
      std::byte& byte = allocation->payload()[offset];
      const std::byte before = byte;
      byte ^= std::byte{0x40};
      const auto damage = allocation->check_canaries();
      REQUIRE(damage.has_value());
      CHECK(damage->offset == offset);
      CHECK(damage->expected == std::to_integer<std::uint8_t>(before));
      CHECK(damage->actual == std::to_integer<std::uint8_t>(byte));
      byte = before;
    }
    CHECK_FALSE(allocation->check_canaries().has_value());
  }
}

TEST_CASE("of several damaged bytes the first is reported") {
  const auto allocation = Allocation::create(100);
  allocation->arm_canaries(1);
  allocation->payload()[205] ^= std::byte{1};
  allocation->payload()[104] ^= std::byte{1};
  CHECK(allocation->check_canaries()->offset == 104);
  allocation->payload()[-3] ^= std::byte{1};
  CHECK(allocation->check_canaries()->offset == -3);
}

TEST_CASE("a new seed is a new pattern: a stale canary page is damage") {
  const auto allocation = Allocation::create(64);
  const auto page = static_cast<std::ptrdiff_t>(Allocation::granularity());
  allocation->arm_canaries(1);
  const std::vector<std::byte> old(allocation->payload() - page, allocation->payload());
  allocation->arm_canaries(2);
  std::size_t equal = 0;
  for (std::ptrdiff_t i = 0; i < page; ++i)
    equal += old[static_cast<std::size_t>(i)] == allocation->payload()[i - page];
  CHECK(equal < old.size() / 64);
  std::memcpy(allocation->payload() - page, old.data(), old.size());
  CHECK(allocation->check_canaries().has_value());
}

TEST_CASE("live allocations are counted and may die on any thread") {
  const std::int64_t before = Allocation::live_count();
  auto allocation = Allocation::create(10);
  auto second = allocation;
  CHECK(Allocation::live_count() == before + 1);
  allocation.reset();
  CHECK(Allocation::live_count() == before + 1);
  std::thread([held = std::move(second)]() mutable { held.reset(); }).join();
  CHECK(Allocation::live_count() == before);
}

TEST_CASE("a size that cannot exist is refused by name") {
  const std::int64_t before = Allocation::live_count();
  std::string message;
  for (const std::size_t byte_count : {std::numeric_limits<std::size_t>::max(),
                                       static_cast<std::size_t>(std::numeric_limits<std::ptrdiff_t>::max())}) {
    CHECK(create_error(byte_count, &message) == ErrorCode::kAllocation);
    CHECK(message.find(std::to_string(byte_count)) != std::string::npos);
  }
  CHECK(Allocation::live_count() == before);
}

TEST_CASE("the nth creation can be made to fail, once") {
  const std::int64_t before = Allocation::live_count();
  Allocation::fail_nth_create(2);
  const auto first = Allocation::create(1);
  CHECK(create_error(321) == ErrorCode::kAllocation);
  const auto third = Allocation::create(1);
  CHECK(Allocation::live_count() == before + 2);
  Allocation::fail_nth_create(1);
  Allocation::fail_nth_create(0);
  const auto fourth = Allocation::create(1);
}
