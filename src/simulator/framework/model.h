// What a loaded model keeps: the package, its programs by numerics, idle runs, and what the framework still holds.
// Threads: ModelRuntime is safe from any thread, so that a client's overlapping predictions are counted and survive.
// Ownership: the model owns its runtime; a RunLease gives its run back.
#pragma once

#import <CoreML/CoreML.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "framework/control.h"
#include "framework/release_thread.h"
#include "framework/strong.h"
#include "mil/engine.h"

namespace coremlsim {

inline constexpr const char* kCompiledMarker = "compiled-by-simulator.txt";

class ModelRuntime {
 public:
  ModelRuntime(std::shared_ptr<const mil::Package> package, std::string function, mil::Numerics numerics, int threads);
  ~ModelRuntime();
  ModelRuntime(const ModelRuntime&) = delete;
  ModelRuntime& operator=(const ModelRuntime&) = delete;

  const mil::Package& package() const noexcept { return *package_; }
  mil::Numerics numerics() const noexcept { return numerics_; }
  // Creates the program on first use. Throws mil::ModelError.
  std::shared_ptr<const mil::Program> program(mil::Numerics numerics);

  class RunLease {
   public:
    RunLease(ModelRuntime& runtime, mil::Numerics numerics);
    ~RunLease();
    RunLease(const RunLease&) = delete;
    RunLease& operator=(const RunLease&) = delete;
    mil::Run& run() noexcept { return *run_; }

   private:
    ModelRuntime& runtime_;
    mil::Numerics numerics_;
    std::unique_ptr<mil::Run> run_;
  };

  // The inputs of the newest prediction stay retained; those of the one before go to the release thread.
  void hold(std::vector<Strong<id>> objects);

  std::atomic<int> in_flight{0};
  std::mutex previous_mutex;
  std::uint64_t previous_serial = 0;                       // of the fault settings under which they were kept
  std::map<std::string, std::vector<std::byte>> previous;  // dense bytes of the last outputs (stale_previous)

 private:
  std::shared_ptr<const mil::Package> package_;
  std::string function_;
  mil::Numerics numerics_;
  int threads_;
  std::mutex mutex_;
  std::map<mil::Numerics, std::shared_ptr<const mil::Program>> programs_;
  std::map<mil::Numerics, std::vector<std::unique_ptr<mil::Run>>> idle_;
  ReleaseToken held_ = 0;
};

// Opens a compiled model folder. False with the NSError that loading must give.
std::shared_ptr<const mil::Package> open_compiled(NSURL* url, NSError** error);
// The description of a function; null with the NSError when there is none of that name (nil: the default one).
const mil::FunctionDescription* find_function(const mil::Package& package, NSString* name, NSError** error);

// Runs an action on a thread of the framework, in an autorelease pool (asynchronous API).
void run_async(std::function<void()> action);
// Calls a completion handler that was kept as an object.
template <class T>
void complete(const Strong<id>& handler, T value, NSError* error) {
  ((void (^)(T, NSError*))handler.get())(value, error);
}

}  // namespace coremlsim

struct MLModelStorage {
  std::unique_ptr<coremlsim::ModelRuntime> runtime;
  const coremlsim::mil::FunctionDescription* function = nullptr;  // lives in the runtime's package
  coremlsim::Strong<MLModelDescription*> description;
  coremlsim::Strong<MLModelConfiguration*> configuration;
};
