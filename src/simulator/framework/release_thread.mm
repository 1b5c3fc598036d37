#include "framework/release_thread.h"

#import <Foundation/Foundation.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <ctime>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "framework/control.h"

namespace coremlsim {
namespace {

using Clock = std::chrono::steady_clock;

class ReleaseQueue {
 public:
  // Never destroyed: objects are released until the very end of the process.
  static ReleaseQueue& shared() {
    static auto* queue = [] {
      auto* created = new ReleaseQueue;
      pthread_atfork([] { shared().mutex_.lock(); }, [] { shared().mutex_.unlock(); },
                     [] { shared().reset_in_child(); });
      std::atexit([] { shared().stop(); });
      return created;
    }();
    return *queue;
  }

  // The thread is woken after the lock is given back (it would wait for it at once), and only for what comes first.
  ReleaseToken post(std::function<void()> action, int delay_ms) {
    std::unique_lock lock(mutex_);
    const ReleaseToken token = next_token_++;
    const std::pair key(Clock::now() + std::chrono::milliseconds(delay_ms), token);
    const bool is_first = waiting_.emplace(key, std::move(action)).first == waiting_.begin();
    if (!running_ && !stopping_) {
      running_ = pthread_create(
                     &thread_, nullptr, [](void* self) -> void* {
                       static_cast<ReleaseQueue*>(self)->run();
                       return nullptr;
                     }, this) == 0;
    }
    lock.unlock();
    if (is_first) {
      wake_.notify_one();
    }
    return token;
  }

  void expedite(ReleaseToken token) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                      [&](const auto& entry) { return entry.first.second == token; });
      if (found == waiting_.end()) {
        return;
      }
      auto node = waiting_.extract(found);
      node.key().first = Clock::time_point::min();
      waiting_.insert(std::move(node));
    }
    wake_.notify_one();
  }

  bool drain(int timeout_ms) {
    std::unique_lock lock(mutex_);
    draining_ = true;
    wake_.notify_one();
    const bool done =
        idle_.wait_for(lock, std::chrono::milliseconds(timeout_ms), [&] { return waiting_.empty() && !busy_; });
    draining_ = false;
    return done;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      if (waiting_.empty()) {
        idle_.notify_all();
        wake_.wait(lock);
        continue;
      }
      const auto deadline = waiting_.begin()->first.first;
      if (!draining_ && deadline > Clock::now()) {
        wake_.wait_until(lock, deadline);
        continue;
      }
      auto node = waiting_.extract(waiting_.begin());
      busy_ = true;
      lock.unlock();
      @autoreleasepool {
        node.mapped()();
        node.mapped() = nullptr;  // what the action captured goes inside the pool, too
      }
      lock.lock();
      busy_ = false;
    }
  }

  // An action that never returns must not keep the process alive: wait a second, then leave the thread to the kernel.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      if (!running_) {
        return;
      }
      running_ = false;
    }
    wake_.notify_all();
    timespec limit{};
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 1;
    if (pthread_timedjoin_np(thread_, nullptr, &limit) != 0) {
      pthread_detach(thread_);
    }
  }

  // Only the forking thread exists in the child, and it holds the mutex (see the prepare handler).
  void reset_in_child() {
    new (&wake_) std::condition_variable;
    new (&idle_) std::condition_variable;
    running_ = false;
    busy_ = false;
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::map<std::pair<Clock::time_point, ReleaseToken>, std::function<void()>> waiting_;
  ReleaseToken next_token_ = 1;
  pthread_t thread_{};
  bool running_ = false;
  bool stopping_ = false;
  bool busy_ = false;
  bool draining_ = false;
};

}  // namespace

ReleaseToken post_release(std::function<void()> action, int delay_ms) {
  if (delay_ms == 0 && !options().foreign_release_thread) {
    action();
    return 0;
  }
  return ReleaseQueue::shared().post(std::move(action), delay_ms);
}

void expedite_release(ReleaseToken token) {
  if (token != 0) {
    ReleaseQueue::shared().expedite(token);
  }
}

bool drain_releases(int timeout_ms) { return ReleaseQueue::shared().drain(timeout_ms); }

}  // namespace coremlsim
