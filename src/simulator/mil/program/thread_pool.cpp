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
  static const int hardware = static_cast<int>(std::thread::hardware_concurrency());  // reads a file
  return std::clamp(hardware, 1, kDefaultThreads);
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(resolve(threads)), owner_(getpid()), shared_(std::make_unique<Shared>()) {}

ThreadPool::~ThreadPool() {
  if (owner_ != getpid()) {
    // A forked child: joining threads that do not exist here, or destroying a condition variable on which they wait,
    // would never return. The child gives the memory up.
    (void)shared_.release();
    return;
  }
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop = true;
  }
  shared_->wake.notify_all();
  for (std::thread& thread : shared_->workers) thread.join();
}

void ThreadPool::work(Shared& shared) {
  const Body& body = *shared.body;
  const std::int64_t count = shared.count, grain = shared.grain;
  try {
    for (;;) {
      const std::int64_t begin = shared.next.fetch_add(grain, std::memory_order_relaxed);
      if (begin >= count) return;
      body(begin, std::min(begin + grain, count));
    }
  } catch (...) {
    shared.next.store(count, std::memory_order_relaxed);
    const std::lock_guard lock(shared.mutex);
    if (!shared.error) shared.error = std::current_exception();
  }
}

void ThreadPool::worker(Shared& shared) {
  std::unique_lock lock(shared.mutex);
  std::uint64_t seen = 0;
  for (;;) {
    shared.wake.wait(lock, [&] { return shared.stop || (shared.open && shared.generation != seen); });
    if (shared.stop) return;
    seen = shared.generation;
    ++shared.active;
    lock.unlock();
    work(shared);
    lock.lock();
    if (--shared.active == 0) shared.done.notify_one();
  }
}

void ThreadPool::parallel_for(std::int64_t count, std::int64_t grain, const Body& body) {
  if (count <= 0) return;
  grain = std::max<std::int64_t>(grain, 1);
  std::unique_lock<std::mutex> caller;
  // A forked child must not touch the workers' locks at all: a thread that is gone may hold or wait for them.
  if (threads_ > 1 && count > grain && owner_ == getpid()) {
    caller = std::unique_lock(shared_->caller, std::try_to_lock);
  }
  if (!caller.owns_lock()) {
    for (std::int64_t begin = 0; begin < count; begin += grain) body(begin, std::min(begin + grain, count));
    return;
  }
  Shared& shared = *shared_;
  while (static_cast<int>(shared.workers.size()) + 1 < threads_)
    shared.workers.emplace_back([&shared] { worker(shared); });
  {
    const std::lock_guard lock(shared.mutex);
    shared.body = &body;
    shared.count = count;
    shared.grain = grain;
    shared.error = nullptr;
    shared.next.store(0, std::memory_order_relaxed);
    shared.open = true;
    ++shared.generation;
  }
  shared.wake.notify_all();
  work(shared);
  std::unique_lock lock(shared.mutex);
  shared.open = false;
  shared.done.wait(lock, [&] { return shared.active == 0; });
  if (shared.error) std::rethrow_exception(std::exchange(shared.error, nullptr));
}

}  // namespace coremlsim::mil
