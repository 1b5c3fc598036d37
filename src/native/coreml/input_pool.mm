#import "coreml/input_pool.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::size_t kMaxPooledByteCount = std::size_t{256} << 20;
constexpr std::size_t kMinBuffers = 4, kMaxBuffers = 256;
constexpr auto kPatience = std::chrono::seconds(5);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

}  // namespace

std::size_t InputPool::max_buffers(std::size_t byte_count) noexcept {
  return std::clamp(kMaxPooledByteCount / std::max<std::size_t>(byte_count, 1), kMinBuffers, kMaxBuffers);
}

std::shared_ptr<InputLoan> InputPool::try_borrow(std::size_t byte_count, bool* created) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto lend = [](const std::shared_ptr<InputBuffer>& buffer) {
    buffer->on_loan.store(true, std::memory_order_relaxed);
    return std::make_shared<InputLoan>(buffer);
  };
  std::shared_ptr<InputBuffer>* too_small = nullptr;
  for (auto& buffer : buffers_) {
    if (buffer->on_loan.load(std::memory_order_acquire)) continue;
    if (buffer->memory->byte_count() >= byte_count) return lend(buffer);
    too_small = &buffer;  // another shape of a flexible input
  }
  if (too_small == nullptr && buffers_.size() >= max_buffers(byte_count)) return nullptr;
  auto buffer = std::make_shared<InputBuffer>();
  buffer->memory = Allocation::create(std::max<std::size_t>(byte_count, 1));
  *created = true;
  if (too_small != nullptr) {
    *too_small = buffer;
  } else {
    buffers_.push_back(buffer);
  }
  return lend(buffer);
}

std::shared_ptr<InputLoan> InputPool::borrow(std::size_t byte_count, bool* created) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  for (;;) {
    if (auto loan = try_borrow(byte_count, created)) return loan;
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
