// Faults of locks, allocations, time and whole processes; settings and numerics.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "simulator_support.h"

using namespace kvb_test;

namespace {

std::int64_t fired(const std::string& name) { return coremlsim::fired_counts().at(name); }

}  // namespace

TEST_CASE("sticky_after_cpu_lock, locked_surface, input_lock: buffers that cannot be proposed again") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    MLDictionaryFeatureProvider* x = features(counting_array({2, 3, 8}));
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    const auto propose = [&](MLMultiArray* array) {
      return [tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : array}) error:nullptr] != nil;
    };
    coremlsim::set_faults(R"({"sticky_after_cpu_lock": true})");
    MLMultiArray* array = surface_array(buffer, {2, 3, 8});
    CHECK(propose(array));
    CHECK(propose(array));
    values_of(array);
    CHECK_FALSE(propose(array));
    CHECK(propose(surface_array(buffer, {2, 3, 8})));  // a new array over the same buffer will do
    coremlsim::set_faults(R"({"sticky_after_cpu_lock": "buffer"})");
    CHECK_FALSE(propose(surface_array(buffer, {2, 3, 8})));
    CVPixelBufferRelease(buffer);
    buffer = make_buffer({2, 3, 8});
    IOSurfaceLock(CVPixelBufferGetIOSurface(buffer), 0, nullptr);  // before any array: harmless
    IOSurfaceUnlock(CVPixelBufferGetIOSurface(buffer), 0, nullptr);
    CHECK(propose(surface_array(buffer, {2, 3, 8})));
    coremlsim::set_faults(R"({"locked_surface": true})");
    @autoreleasepool {
      MLMultiArray* once = surface_array(buffer, {2, 3, 8});
      CHECK(propose(once));
      CHECK_FALSE(propose(once));
    }
    CHECK(propose(surface_array(buffer, {2, 3, 8})));  // the lock went with the array
    CVPixelBufferRelease(buffer);
    buffer = make_buffer({2, 3, 8});
    coremlsim::set_faults(R"({"input_lock": true})");
    MLMultiArray* input = surface_array(buffer, {2, 3, 8});
    CHECK([tiny.model predictionFromFeatures:features(input) error:nullptr] != nil);
    CHECK(CVPixelBufferGetBaseAddress(buffer) != nullptr);
    CHECK_FALSE(propose(input));
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("allocation_failure: the nth allocation of a kind") {
  const CleanSwitches clean;
  @autoreleasepool {
    coremlsim::set_faults(R"({"allocation_failure": {"surface": 2, "array": 1}})");
    CVPixelBufferRef first = make_buffer({2, 3, 8});
    NSDictionary* attributes = @{(NSString*)kCVPixelBufferIOSurfacePropertiesKey : @{}};
    CVPixelBufferRef second = nullptr;
    CHECK(CVPixelBufferCreate(nullptr, 8, 6, kCVPixelFormatType_OneComponent16Half, (CFDictionaryRef)attributes,
                              &second) == kCVReturnAllocationFailed);
    CHECK(CVPixelBufferCreate(nullptr, 8, 6, kCVPixelFormatType_OneComponent16Half, (CFDictionaryRef)attributes,
                              &second) == kCVReturnSuccess);
    CHECK([[MLMultiArray alloc] initWithShape:numbers({2}) dataType:MLMultiArrayDataTypeFloat32 error:nullptr] == nil);
    CHECK(fired("allocation_failure") == 2);
    CVPixelBufferRelease(first);
    CVPixelBufferRelease(second);
  }
}

TEST_CASE("hang ends when the fault does; latency takes its time; late_release holds everything") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    using Clock = std::chrono::steady_clock;
    coremlsim::set_faults(R"({"hang": true})");
    std::atomic<bool> returned{false};
    std::thread hanging([&] {
      @autoreleasepool {
        NSError* error = nil;
        CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:&error] == nil);
        CHECK([error code] == MLModelErrorPredictionCancelled);
        returned = true;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK_FALSE(returned);
    coremlsim::set_faults("{}");
    hanging.join();
    coremlsim::set_faults(R"({"latency": 60})");
    const auto start = Clock::now();
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr] != nil);
    CHECK(Clock::now() - start >= std::chrono::milliseconds(60));
    coremlsim::set_faults(R"({"late_release": 60000})");
    coremlsim::configure(R"({"input_hold_ms": 0})");
    const auto before = coremlsim::live_counts()["array"];
    @autoreleasepool {
      CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr] != nil);
    }
    CHECK(coremlsim::live_counts()["array"] > before);
    CHECK(coremlsim::drain_releases(5000));
    CHECK(coremlsim::live_counts()["array"] <= before);
  }
}

TEST_CASE("overlap: a second prediction on one model is an NSError when told") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    coremlsim::set_faults(R"({"overlap": true, "latency": 300})");
    std::atomic<int> failures{0};
    auto* model = tiny.model;
    const auto run = [model, &failures] {
      @autoreleasepool {
        failures += [model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr] == nil ? 1 : 0;
      }
    };
    std::thread first(run);
    std::thread second(run);
    first.join();
    second.join();
    CHECK(failures == 1);
    CHECK(fired("overlap") == 1);
  }
}

TEST_CASE("crash ends the process by a signal; a child after fork releases and exits") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
#if __has_feature(thread_sanitizer)
    const std::vector<bool> crashes{true};  // that runtime ends every child that starts a thread
#else
    const std::vector<bool> crashes{true, false};
#endif
    for (const bool crash : crashes) {
      const pid_t child = fork();
      if (child == 0) {
        if (crash) {
          coremlsim::set_faults(R"({"crash": true})");
        }
        @autoreleasepool {
          [tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr];
        }
        _exit(coremlsim::drain_releases(5000) ? 0 : 3);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      CHECK(WIFSIGNALED(status) == crash);
      CHECK((crash ? WTERMSIG(status) == SIGSEGV : WEXITSTATUS(status) == 0));
    }
  }
}

TEST_CASE("settings are checked as a whole before any of them applies") {
  const CleanSwitches clean;
  coremlsim::set_faults(R"({"stale": true})");
  for (const char* wrong :
       {R"({"nobody": true})", R"({"nan": "fourth"})", R"({"latency": "long"})", R"({"latency": -1})",
        R"({"hang": ["y"]})", R"({"ignore": "y"})", R"({"allocation_failure": ["disk"]})", R"({"stale": 3})",
        R"({"times": "two", "stale": true})", "no json", "[]"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(coremlsim::set_faults(wrong), std::invalid_argument);
  }
  CHECK(coremlsim::Faults::current().wants(coremlsim::Fault::kStale).has_value());
  CHECK_THROWS_AS(coremlsim::configure(R"({"row_padding": 8, "nobody": 1})"), std::invalid_argument);
  CHECK_THROWS_AS(coremlsim::configure(R"({"numerics": "fp8"})"), std::invalid_argument);
  CHECK(coremlsim::options().row_padding == 64);
}

TEST_CASE("numerics follow compute units, and a backing may change the placement when told") {
  const CleanSwitches clean;
  @autoreleasepool {
    coremlsim::configure(R"({"numerics": {"all": "fp16", "cpu_only": "fp32"}, "backed_numerics": "fp32"})");
    CHECK(coremlsim::options().numerics[2] == coremlsim::mil::Numerics::kFloat16);
    CHECK(coremlsim::options().numerics[0] == coremlsim::mil::Numerics::kFloat32);
    TinyModel tiny;
    RawBacking y({2, 3, 8});
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) options:backed_by(@{@"y" : y.array})
                                       error:nullptr] != nil);
    CHECK(values_of(y.array) == expected("y", 48));
    CHECK(coremlsim::options_json().find("\"backed_numerics\"") != std::string::npos);
  }
}
