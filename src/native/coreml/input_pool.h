// Native input buffers: caller arrays are copied in, wrapped in a fresh MLMultiArray, and a buffer is used again only
// after that wrapper's deallocator ran, because Core ML may hold an array for a while after a prediction returned.
// Threads: any; the pool has its own lock, which the deallocator does not take (it sets one atomic flag).
// Ownership: a loan keeps its buffer; idle buffers belong to the pool; at most max_buffers() exist per input.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "coreml/counters.h"
#include "kvbacking/allocation.h"

namespace kvbacking {

struct InputBuffer {
  std::shared_ptr<Allocation> memory;
  std::atomic<bool> on_loan{false};
  Counted<Counter::kInput> counted;
};

// Owned by the wrapper's deallocator block: its death makes the buffer available again.
struct InputLoan {
  explicit InputLoan(std::shared_ptr<InputBuffer> lent) : buffer(std::move(lent)) {}
  ~InputLoan() { buffer->on_loan.store(false, std::memory_order_release); }
  InputLoan(const InputLoan&) = delete;
  InputLoan& operator=(const InputLoan&) = delete;
  std::shared_ptr<InputBuffer> buffer;
};

class InputPool {
 public:
  // A buffer of at least `byte_count` bytes. When max_buffers() are all still held by the framework, waits up to
  // kPatience for one and then throws Error(kBackingInUse). Sets *created when it had to allocate.
  std::shared_ptr<InputLoan> borrow(std::size_t byte_count, bool* created);
  void release_idle() noexcept;
  static std::size_t max_buffers(std::size_t byte_count) noexcept;

 private:
  std::shared_ptr<InputLoan> try_borrow(std::size_t byte_count, std::size_t limit, bool* created);
  void give_back_idle();
  bool is_comfortable();
  std::mutex mutex_;
  std::vector<std::shared_ptr<InputBuffer>> buffers_;
};

}  // namespace kvbacking
