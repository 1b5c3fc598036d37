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
#include <memory>
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
  struct Shared {  // between the callers and the workers
    std::vector<std::thread> workers;
    std::mutex caller;  // held by the one caller whose loop the workers share

    std::mutex mutex;  // guards everything below but next
    std::condition_variable wake, done;
    bool stop = false, open = false;
    std::uint64_t generation = 0;
    int active = 0;
    const Body* body = nullptr;
    std::int64_t count = 0, grain = 0;
    std::exception_ptr error;
    std::atomic<std::int64_t> next{0};
  };
  static void worker(Shared& shared);
  static void work(Shared& shared);

  const int threads_;
  const pid_t owner_;  // the process whose threads the workers are
  std::unique_ptr<Shared> shared_;
};

}  // namespace coremlsim::mil
