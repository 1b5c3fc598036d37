#import "coreml/input_pool.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#import "coreml/autorelease.h"
#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::size_t kMaxPooledByteCount = std::size_t{256} << 20;
constexpr std::size_t kMinBuffers = 8, kMaxBuffers = 256;
// Above this many, a deallocator that is about to run is worth a moment's wait, and idle buffers are given back. On a
// busy machine its thread needs the processor first: giving way is not enough, sleeping is. A framework that holds
// arrays for long costs this once: nobody sleeps while there are more buffers than these.
constexpr std::size_t kComfortable = 8;
constexpr int kYields = 16, kNaps = 50;
constexpr auto kNap = std::chrono::microseconds(100);
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

}  // namespace

std::size_t InputPool::max_buffers(std::size_t byte_count) noexcept {
  return std::clamp(kMaxPooledByteCount / std::max<std::size_t>(byte_count, 1), kMinBuffers, kMaxBuffers);
}

std::shared_ptr<InputLoan> InputPool::try_borrow(std::size_t byte_count, std::size_t limit, bool* created) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lend = [](const std::shared_ptr<InputBuffer>& buffer) {
    buffer->on_loan.store(true, std::memory_order_relaxed);
    return std::make_shared<InputLoan>(buffer);
  };
  std::shared_ptr<InputBuffer>* too_small = nullptr;
  for (auto& buffer : buffers_) {
    if (buffer->on_loan.load(std::memory_order_acquire)) continue;
    if (buffer->memory->byte_count() >= byte_count) {
      auto loan = lend(buffer);
      give_back_idle();
      return loan;
    }
    too_small = &buffer;  // another shape of a flexible input
  }
  if (too_small == nullptr && buffers_.size() >= limit) return nullptr;
  auto buffer = std::make_shared<InputBuffer>();
  // A framework that lags behind for a moment makes a burst of buffers, which must not stay in the footprint.
  buffer->memory = Allocation::create(std::max<std::size_t>(byte_count, 1), Allocation::Origin::kSystem);
  *created = true;
  if (too_small != nullptr) {
    *too_small = buffer;
  } else {
    buffers_.push_back(buffer);
  }
  return lend(buffer);
}

bool InputPool::is_comfortable() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return buffers_.size() <= kComfortable;
}

void InputPool::release_idle() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(buffers_, [](const auto& buffer) { return !buffer->on_loan.load(std::memory_order_acquire); });
}

// Called with the lock held.
void InputPool::give_back_idle() {
  std::size_t surplus = buffers_.size() > kComfortable ? buffers_.size() - kComfortable : 0;
  std::erase_if(buffers_, [&](const std::shared_ptr<InputBuffer>& buffer) {
    if (surplus == 0 || buffer->on_loan.load(std::memory_order_acquire)) return false;
    --surplus;
    return true;
  });
}

std::shared_ptr<InputLoan> InputPool::borrow(std::size_t byte_count, bool* created) {
  for (int i = 0; i < kYields + kNaps; ++i) {
    if (auto loan = try_borrow(byte_count, kComfortable, created)) return loan;
    if (i < kYields) {
      std::this_thread::yield();
    } else if (is_comfortable()) {
      std::this_thread::sleep_for(kNap);
    } else {
      break;
    }
  }
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  // A held pool keeps the wrappers of every call: there the bound would end the experiment and protect nothing.
  const std::size_t limit = holds_autorelease_pool() ? SIZE_MAX : max_buffers(byte_count);
  for (;;) {
    if (auto loan = try_borrow(byte_count, limit, created)) return loan;
    if (std::chrono::steady_clock::now() >= deadline) {
      const auto count = static_cast<std::int64_t>(max_buffers(byte_count));
      throw Error(ErrorCode::kBackingInUse,
                  "[input_pool] the framework still holds all " + std::to_string(count) +
                      " input buffers of earlier predictions after 5 s; predict less often",
                  {{"buffers", count}});
    }
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace kvbacking
