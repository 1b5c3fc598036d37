// Splits loops over a few threads. The caller always works too, so that progress never depends on a worker: a forked
// child, which has none, still finishes.
// Threads: parallel_for may be called from any thread; a second caller at the same time runs its loop alone.
// Ownership: owns its workers; the destructor joins them (in the process that started them).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace coremlsim::mil {

class ThreadPool {
 public:
  using Body = std::function<void(std::int64_t begin, std::int64_t end)>;

  explicit ThreadPool(int threads);  // 0: the hardware's number, at most two
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const noexcept { return threads_; }
  // Calls body on disjoint ranges of at most `grain` that cover [0, count). Rethrows the first exception.
  void parallel_for(std::int64_t count, std::int64_t grain, const Body& body);

 private:
  void start();
  void worker();
  void work();

  const int threads_;
  pid_t owner_ = 0;  // process that started the workers
  std::vector<std::thread> workers_;
  std::mutex caller_;  // held by the one caller whose loop the workers share

  std::mutex mutex_;  // guards everything below but next_
  std::condition_variable wake_, done_;
  bool stop_ = false, open_ = false;
  std::uint64_t generation_ = 0;
  int active_ = 0;
  const Body* body_ = nullptr;
  std::int64_t count_ = 0, grain_ = 0;
  std::exception_ptr error_;
  std::atomic<std::int64_t> next_{0};
};

}  // namespace coremlsim::mil
