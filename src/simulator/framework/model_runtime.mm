#include <pthread.h>

#include <memory>
#include <utility>

#include "framework/model.h"

namespace coremlsim {

ModelRuntime::ModelRuntime(std::shared_ptr<const mil::Package> package, std::string function, mil::Numerics numerics,
                           int threads)
    : package_(std::move(package)), function_(std::move(function)), numerics_(numerics), threads_(threads) {
  program(numerics_);  // what is wrong with the program shows at load
}

ModelRuntime::~ModelRuntime() { expedite_release(held_); }

std::shared_ptr<const mil::Program> ModelRuntime::program(mil::Numerics numerics) {
  const std::lock_guard lock(mutex_);
  auto& program = programs_[numerics];
  if (program == nullptr) {
    program = mil::Program::create(package_, {function_, numerics, threads_});
  }
  return program;
}

ModelRuntime::RunLease::RunLease(ModelRuntime& runtime, mil::Numerics numerics)
    : runtime_(runtime), numerics_(numerics) {
  const auto program = runtime.program(numerics);
  {
    const std::lock_guard lock(runtime.mutex_);
    if (auto& idle = runtime.idle_[numerics]; !idle.empty()) {
      run_ = std::move(idle.back());
      idle.pop_back();
    }
  }
  if (run_ == nullptr) {
    run_ = program->new_run();
  }
}

ModelRuntime::RunLease::~RunLease() {
  const std::lock_guard lock(runtime_.mutex_);
  runtime_.idle_[numerics_].push_back(std::move(run_));
}

void ModelRuntime::hold(std::vector<Strong<id>> objects) {
  const int hold_ms = options().input_hold_ms;
  ReleaseToken before = 0;
  {
    const std::lock_guard lock(mutex_);
    before = std::exchange(held_, 0);
    if (hold_ms > 0 && !objects.empty()) {
      held_ = post_release([kept = std::move(objects)]() mutable { kept.clear(); }, hold_ms);
    }
  }
  expedite_release(before);
}

void run_async(std::function<void()> action) {
  auto* boxed = new std::function<void()>(std::move(action));
  pthread_t thread{};
  const auto body = [](void* argument) -> void* {
    @autoreleasepool {
      const std::unique_ptr<std::function<void()>> owned(static_cast<std::function<void()>*>(argument));
      (*owned)();
    }
    return nullptr;
  };
  if (pthread_create(&thread, nullptr, body, boxed) != 0) {
    body(boxed);  // no thread to be had: here is better than never
    return;
  }
  pthread_detach(thread);
}

}  // namespace coremlsim
