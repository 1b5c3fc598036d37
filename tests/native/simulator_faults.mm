// Faults of a prediction's outputs do what the table says, and count it.
#include <cmath>
#include <cstring>

#include "simulator_support.h"

using namespace kvb_test;

namespace {

// One prediction with raw backings for y and z, under the faults of a JSON object.
struct Run {
  explicit Run(const std::string& faults, const PackageOptions& options = {})
      : tiny(options), y(tiny.package.shape), z(tiny.package.shape) {
    coremlsim::set_faults(faults);
    predict();
  }
  ~Run() { [result release]; }
  void predict() {
    NSError* problem = nil;
    id made = (id)[tiny.model predictionFromFeatures:features(counting_array(tiny.package.shape))
                                             options:backed_by(@{@"y" : y.array, @"z" : z.array})
                                               error:&problem];
    [result release];
    result = [made retain];
    error = text_of(problem);
  }
  MLMultiArray* get(NSString* name) const {
    return [[(id<MLFeatureProvider>)result featureValueForName:name] multiArrayValue];
  }
  const _Float16* halves(const RawBacking& backing) const { return reinterpret_cast<const _Float16*>(backing.payload); }

  TinyModel tiny;
  RawBacking y, z;
  id result = nil;
  std::string error;
};

std::int64_t fired(const std::string& name) { return coremlsim::fired_counts().at(name); }

// Elements of y that are not what the model computes.
std::vector<std::size_t> wrong_elements(const std::vector<double>& values) {
  std::vector<std::size_t> wrong;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != static_cast<double>(i) + 1) {
      wrong.push_back(i);
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("ignore, ignore_same_address, swap_storage, padded_return, stage: whose memory comes back") {
  const CleanSwitches clean;
  @autoreleasepool {
    {
      Run run(R"({"ignore": ["y"]})");
      CHECK(run.get(@"y") != run.y.array);
      CHECK(run.get(@"z") == run.z.array);
      CHECK(values_of(run.get(@"y")) == expected("y", 48));
      CHECK(run.y.payload[0] == 0x77);
      CHECK(fired("ignore") == 1);
    }
    {
      Run run(R"({"ignore_same_address": ["y"]})");
      CHECK(run.get(@"y") != run.y.array);
      CHECK(run.halves(run.y)[47] == static_cast<_Float16>(48));
    }
    {
      Run run(R"({"swap_storage": ["y"]})");
      CHECK(run.get(@"y") == run.y.array);
      CHECK(run.y.payload[0] == 0x77);
      CHECK(values_of(run.get(@"y")) == expected("y", 48));
      coremlsim::drain_releases(5000);
      CHECK(run.y.deallocations() == 1);
    }
    {
      Run run(R"({"padded_return": ["y"]})");
      CHECK(run.get(@"y") != run.y.array);
      CHECK([[run.get(@"y") strides] isEqual:numbers({36, 11, 1})]);
      CHECK(values_of(run.get(@"y")) == expected("y", 48));
    }
    {
      Run run(R"({"stage": true})");
      CHECK(run.get(@"y") == run.y.array);
      CHECK(values_of(run.y.array) == expected("y", 48));
      CHECK(fired("stage") == 2);
    }
  }
}

TEST_CASE("swap_storage of a surface gives another surface") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    MLMultiArray* y = surface_array(buffer, {2, 3, 8});
    coremlsim::set_faults(R"({"swap_storage": true})");
    id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:features(counting_array({2, 3, 8}))
                                                              options:backed_by(@{@"y" : y})
                                                                error:nullptr];
    CHECK([[result featureValueForName:@"y"] multiArrayValue] == y);
    CHECK([y pixelBuffer] != buffer);
    CHECK(values_of(y) == expected("y", 48));
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("errors and exceptions") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    MLDictionaryFeatureProvider* x = features(counting_array({2, 3, 8}));
    MLModel* model = tiny.model;
    NSURL* compiled = tiny.compiled;
    NSError* error = nil;
    coremlsim::set_faults(R"({"prediction_error": true, "after": 1, "times": 1})");
    CHECK([tiny.model predictionFromFeatures:x error:&error] != nil);
    CHECK([tiny.model predictionFromFeatures:x error:&error] == nil);
    CHECK([tiny.model predictionFromFeatures:x error:&error] != nil);
    CHECK(fired("prediction_error") == 1);
    coremlsim::set_faults(R"({"exception": true})");
    CHECK(exception_of(^{
            [model predictionFromFeatures:x error:nullptr];
          }) == "NSInternalInconsistencyException");
    coremlsim::set_faults("{}");
    CHECK([tiny.model predictionFromFeatures:x error:&error] != nil);
    CHECK(coremlsim::violations()["overlap"] == 0);  // unwinding counted the prediction out again
    coremlsim::set_faults(R"({"exception": "load"})");
    CHECK(exception_of(^{
            [MLModel modelWithContentsOfURL:compiled error:nullptr];
          }) == "NSInternalInconsistencyException");
    coremlsim::set_faults(R"({"load_error": true, "compile_error": true})");
    CHECK([MLModel modelWithContentsOfURL:tiny.compiled error:&error] == nil);
    CHECK(text_of(error).find("load_error") != std::string::npos);
    CHECK([MLModel compileModelAtURL:tiny.compiled error:&error] == nil);
    CHECK(text_of(error).find("compile_error") != std::string::npos);
  }
}

TEST_CASE("disallow: the description and the prediction agree") {
  const CleanSwitches clean;
  @autoreleasepool {
    Run run(R"({"disallow": ["z"]})");
    CHECK(run.result == nil);
    CHECK(run.error.find("feature z") != std::string::npos);
    MLFeatureDescription* z = [[[run.tiny.model modelDescription] outputDescriptionsByName] objectForKey:@"z"];
    CHECK_FALSE([z isAllowedValue:[MLFeatureValue featureValueWithMultiArray:run.z.array]]);
  }
}

TEST_CASE("partial_write leaves exactly the named part") {
  const CleanSwitches clean;
  @autoreleasepool {
    const std::vector<std::pair<std::string, std::vector<std::size_t>>> parts = {
        {"head", {0}}, {"middle", {2}}, {"tail", {5}}, {"one_row", {3}}};
    for (const auto& [part, rows] : parts) {
      CAPTURE(part);
      Run run("{\"partial_write\": {\"y\": \"" + part + "\"}}");
      std::vector<std::size_t> unwritten;
      for (const std::size_t row : rows) {
        for (std::size_t i = 0; i < 8; ++i) {
          unwritten.push_back(row * 8 + i);
        }
      }
      CHECK(wrong_elements(values_of(run.y.array)) == unwritten);
      CHECK(run.y.payload[unwritten.front() * 2] == 0x77);
    }
    Run run(R"({"partial_write": {"y": "one_element"}})");
    CHECK(wrong_elements(values_of(run.y.array)) == std::vector<std::size_t>{28});
    CHECK(fired("partial_write") == 1);
  }
}

TEST_CASE("stale writes nothing; stale_previous writes the values before") {
  const CleanSwitches clean;
  @autoreleasepool {
    Run run(R"({"stale": ["y"]})");
    CHECK(run.y.payload[0] == 0x77);
    CHECK(values_of(run.z.array) == expected("z", 48));
    coremlsim::set_faults(R"({"stale_previous": ["y"]})");
    run.predict();
    CHECK(fired("stale_previous") == 0);  // nothing came before
    MLMultiArray* other = counting_array({2, 3, 8});
    std::memset([other dataPointer], 0, 96);
    id<MLFeatureProvider> result = [run.tiny.model predictionFromFeatures:features(other)
                                                                  options:backed_by(@{@"y" : run.y.array})
                                                                    error:nullptr];
    CHECK(values_of([[result featureValueForName:@"y"] multiArrayValue]) == expected("y", 48));
    CHECK(values_of([[result featureValueForName:@"z"] multiArrayValue]) == std::vector<double>(48, 0.0));
    CHECK(fired("stale_previous") == 1);
  }
}

TEST_CASE("dirty_tail, nan, inf, all_zero: special values where they are asked for") {
  const CleanSwitches clean;
  @autoreleasepool {
    {
      Run run(R"({"nan": {"y": "middle"}, "inf": {"z": "last"}})");
      CHECK(std::isnan(values_of(run.y.array)[24]));
      CHECK(std::isinf(values_of(run.z.array)[47]));
    }
    {
      Run run(R"({"all_zero": true, "dirty_tail": {"y": "byte", "z": "negative_zero"}})");
      CHECK(run.y.payload[94] == 1);
      CHECK(run.y.payload[95] == 0);
      CHECK(run.z.payload[95] == 0x80);
      CHECK(run.z.payload[93] == 0);
      CHECK(fired("dirty_tail") == 2);
    }
  }
}

TEST_CASE("overrun and underrun write around the payload") {
  const CleanSwitches clean;
  @autoreleasepool {
    Run run(R"({"overrun": ["y"], "underrun": ["z"]})");
    CHECK(run.y.payload[96] == 0xA5);
    CHECK(run.y.payload[-1] == 0x77);
    CHECK(run.z.payload[-1] == 0xA5);
    CHECK(run.z.payload[96] == 0x77);
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    MLMultiArray* y = surface_array(buffer, {2, 3, 8});
    coremlsim::set_faults(R"({"overrun": "row_gaps", "underrun": true})");
    CHECK([run.tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) options:backed_by(@{@"y" : y})
                                           error:nullptr] != nil);
    CVPixelBufferLockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
    CHECK(static_cast<const std::uint8_t*>(CVPixelBufferGetBaseAddress(buffer))[16] == 0xA5);
    CVPixelBufferUnlockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
    CHECK(fired("overrun") == 2);   // y's surface and z, which the framework padded
    CHECK(fired("underrun") == 1);  // a surface has nothing in front of it
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("alias_outputs and alias_input: storage is shared") {
  const CleanSwitches clean;
  @autoreleasepool {
    Run run(R"({"alias_outputs": ["z"]})");
    CHECK(run.get(@"z") == run.z.array);
    CHECK(values_of(run.z.array) == expected("y", 48));
    CHECK(fired("alias_outputs") == 1);
    Run other(R"({"alias_input": ["y"]})");
    CHECK(values_of(other.y.array)[47] == 47.0);
  }
}

TEST_CASE("wrong_strides, wrong_dtype, larger_shape: of accepted backings and of new arrays") {
  const CleanSwitches clean;
  @autoreleasepool {
    {
      Run run(R"({"wrong_strides": ["y"], "wrong_dtype": ["z"]})");
      CHECK(run.get(@"y") == run.y.array);
      CHECK([[run.y.array strides] isEqual:numbers({24, 7, 1})]);
      CHECK([run.z.array dataType] == MLMultiArrayDataTypeFloat32);
    }
    {
      Run run(R"({"larger_shape": ["y"]})");
      CHECK([[run.y.array shape] isEqual:numbers({3, 3, 8})]);
    }
    {
      Run run(R"({"ignore": true, "larger_shape": ["y"], "wrong_dtype": ["z"]})");
      CHECK([[run.get(@"y") shape] isEqual:numbers({3, 3, 8})]);
      CHECK(values_of(run.get(@"y")).size() == 72);
      CHECK(values_of(run.get(@"z")) == expected("z", 48));
      CHECK([run.get(@"z") dataType] == MLMultiArrayDataTypeFloat32);
    }
  }
}

TEST_CASE("missing_output, nil_value, extra_output: the provider lies") {
  const CleanSwitches clean;
  @autoreleasepool {
    {
      Run run(R"({"missing_output": ["y"], "extra_output": true})");
      CHECK([[run.result featureNames] containsObject:@"extra_output"]);
      CHECK_FALSE([[run.result featureNames] containsObject:@"y"]);
    }
    {
      Run run(R"({"nil_value": ["y"]})");
      CHECK([[run.result featureNames] containsObject:@"y"]);
      CHECK(run.get(@"y") == nil);
    }
  }
}
