// Waiting for a completion handler with a time limit.
// Threads: deliver() from the framework's thread, wait() from one other. Ownership: the handler's block holds a
// shared_ptr to this, so that an answer that comes after the time limit lands in memory that still exists.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "kvbacking/error.h"

namespace kvbacking {

template <class Value>
class Answer {
 public:
  void deliver(Value value) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!value_) value_.emplace(std::move(value));
    arrived_.notify_all();
  }
  // Throws Error(kModel) when nothing came within `timeout_s` seconds.
  Value wait(double timeout_s, const char* place) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::duration<double>(timeout_s), [&] { return value_.has_value(); })) {
      throw Error(
          ErrorCode::kModel,
          std::string("[") + place + "] no answer from the framework within " + std::to_string(timeout_s) + " s",
          {{"timeout_s", timeout_s}});
    }
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<Value> value_;
};

}  // namespace kvbacking
