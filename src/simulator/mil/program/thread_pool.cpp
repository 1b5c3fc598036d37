#include "mil/program/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace coremlsim::mil {
namespace {

constexpr int kDefaultThreads = 2;
constexpr int kMaxThreads = 64;

int resolve(int threads) {
  if (threads > 0) return std::min(threads, kMaxThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kDefaultThreads);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(resolve(threads)) {}

ThreadPool::~ThreadPool() {
  if (workers_.empty()) return;
  if (owner_ != getpid()) {  // a forked child: the threads do not exist here, joining one would never return
    for (std::thread& worker : workers_) worker.detach();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start() {
  if (!workers_.empty()) return;
  owner_ = getpid();
  for (int i = 1; i < threads_; ++i) workers_.emplace_back([this] { worker(); });
}

void ThreadPool::work() {
  const Body& body = *body_;
  const std::int64_t count = count_, grain = grain_;
  try {
    for (;;) {
      const std::int64_t begin = next_.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(begin + grain, count));
    }
  } catch (...) {
    next_.store(count, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::worker() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || (open_ && generation_ != seen); });
    if (stop_) return;
    seen = generation_;
    ++active_;
    lock.unlock();
    work();
    lock.lock();
    if (--active_ == 0) done_.notify_one();
  }
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  std::unique_lock caller(caller_, std::defer_lock);
  if (threads_ == 1 || count <= grain || !caller.try_lock()) {
    for (std::int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count));
    return;
  }
  start();
  {
    const std::lock_guard lock(mutex_);
    body_ = &body;
    count_ = count;
    grain_ = grain;
    error_ = nullptr;
    next_.store(0, std::memory_order_relaxed);
    open_ = true;
    ++generation_;
  }
  wake_.notify_all();
  work();
  std::unique_lock lock(mutex_);
  open_ = false;
  done_.wait(lock, [&] { return active_ == 0; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

}  // namespace coremlsim::mil
