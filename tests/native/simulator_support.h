// What the simulator's tests share: a loaded tiny model, inputs, backings and readers.
// Threads: one test at a time. Ownership: objects are autoreleased; tests run inside a pool.
#pragma once

#import <CoreML/CoreML.h>
#include <doctest/doctest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "framework/control.h"
#include "framework/faults.h"
#include "simulator_package.h"

namespace kvb_test {

// Every switch as in a new process, at construction and destruction.
struct CleanSwitches {
  CleanSwitches() { reset(); }
  ~CleanSwitches() { reset(); }
  static void reset() {
    coremlsim::set_faults("{}");
    coremlsim::reset_options();
    coremlsim::hide_api("");
    coremlsim::reset_violations();
    coremlsim::drain_releases(5000);
  }
};

struct TinyModel {
  explicit TinyModel(const PackageOptions& options = {});
  ~TinyModel();
  TemporaryFolder folder;
  NSURL* compiled = nil;
  MLModel* model = nil;
  PackageOptions package;
};

NSURL* compile_package(const std::filesystem::path& package);
NSArray<NSNumber*>* numbers(const std::vector<std::int64_t>& values);
std::string text_of(NSError* error);
std::string name_of(NSString* text);
// Runs the block; the name of the NSException that it raised, or "".
std::string exception_of(void (^block)(void));

// A dense Float16 array of 0, 1, 2, ...
MLMultiArray* counting_array(const std::vector<std::int64_t>& shape);
MLDictionaryFeatureProvider* features(MLMultiArray* x);
// Page-aligned memory with `margin` bytes of 0x77 on both sides of the payload.
struct RawBacking {
  explicit RawBacking(const std::vector<std::int64_t>& shape);
  RawBacking(const RawBacking&) = delete;
  RawBacking& operator=(const RawBacking&) = delete;
  ~RawBacking();
  int deallocations() const { return memory->deallocations; }
  struct Memory {
    std::vector<std::uint8_t> block;
    std::atomic<int> deallocations{0};
  };
  std::shared_ptr<Memory> memory;  // also held by the array, which the framework may keep for longer
  std::uint8_t* payload = nullptr;
  std::size_t byte_count = 0;
  MLMultiArray* array = nil;
};
CVPixelBufferRef make_buffer(const std::vector<std::int64_t>& shape);  // +1
MLMultiArray* surface_array(CVPixelBufferRef buffer, const std::vector<std::int64_t>& shape);
MLPredictionOptions* backed_by(NSDictionary<NSString*, id>* backings);
// Logical values, first-major.
std::vector<double> values_of(MLMultiArray* array);
std::vector<double> expected(const std::string& output, std::size_t count);

}  // namespace kvb_test
