// The documented rules of predictions and backings (checklist of the API fact sheet), one case each.
#include <thread>

#include "simulator_support.h"

using namespace kvb_test;

namespace {

MLMultiArray* output(id<MLFeatureProvider> result, NSString* name) {
  return [[result featureValueForName:name] multiArrayValue];
}

}  // namespace

TEST_CASE("framework outputs are padded, poisoned memory of the framework with the right values") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    NSError* error = nil;
    id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:&error];
    REQUIRE_MESSAGE(result != nil, text_of(error));
    CHECK([[result featureNames] count] == 2);
    MLMultiArray* y = output(result, @"y");
    CHECK(values_of(y) == expected("y", 48));
    CHECK(values_of(output(result, @"z")) == expected("z", 48));
    // 8 Float16 are 16 bytes: next multiple of 64, plus 64, is 128 bytes = 64 elements per row.
    CHECK([[y strides] isEqual:numbers({192, 64, 1})]);
    CHECK([[y shape] isEqual:numbers({2, 3, 8})]);
    CHECK([result featureValueForName:@"nobody"] == nil);
  }
}

TEST_CASE("an accepted backing is the returned object, raw and surface") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    RawBacking y({2, 3, 8});
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    MLMultiArray* z = surface_array(buffer, {2, 3, 8});
    const uint32_t seed = IOSurfaceGetSeed(CVPixelBufferGetIOSurface(buffer));
    NSError* error = nil;
    id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:features(counting_array({2, 3, 8}))
                                                              options:backed_by(@{@"y" : y.array, @"z" : z})
                                                                error:&error];
    REQUIRE_MESSAGE(result != nil, text_of(error));
    CHECK(output(result, @"y") == y.array);
    CHECK(output(result, @"z") == z);
    CHECK(values_of(y.array) == expected("y", 48));
    CHECK(values_of(z) == expected("z", 48));
    CHECK(reinterpret_cast<const _Float16*>(y.payload)[47] == static_cast<_Float16>(48));
    CHECK(IOSurfaceGetSeed(CVPixelBufferGetIOSurface(buffer)) != seed);
    CHECK(CVPixelBufferGetBaseAddress(buffer) == nullptr);  // nobody holds a lock afterwards
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("unknown backing names and batch predictions ignore backings") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    RawBacking y({2, 3, 8});
    RawBacking unknown({1});
    MLPredictionOptions* options = backed_by(@{@"y" : y.array, @"nobody" : unknown.array});
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) options:options error:nullptr] != nil);
    MLArrayBatchProvider* batch = [[[MLArrayBatchProvider alloc]
        initWithFeatureProviderArray:@[ features(counting_array({2, 3, 8})) ]] autorelease];
    id<MLBatchProvider> results = [tiny.model predictionsFromBatch:batch options:options error:nullptr];
    REQUIRE([results count] == 1);
    CHECK(output([results featuresAtIndex:0], @"y") != y.array);
    coremlsim::configure(R"({"backings_in_batch": true})");
    results = [tiny.model predictionsFromBatch:batch options:options error:nullptr];
    CHECK(output([results featuresAtIndex:0], @"y") == y.array);
  }
}

TEST_CASE("a backing that isAllowedValue: refuses fails the prediction") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    RawBacking wrong({2, 3, 9});
    MLFeatureDescription* y = [[[tiny.model modelDescription] outputDescriptionsByName] objectForKey:@"y"];
    CHECK_FALSE([y isAllowedValue:[MLFeatureValue featureValueWithMultiArray:wrong.array]]);
    NSError* error = nil;
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8}))
                                     options:backed_by(@{@"y" : wrong.array})
                                       error:&error] == nil);
    CHECK(name_of([error domain]) == "com.apple.CoreML");
    CHECK(text_of(error).find("feature y") != std::string::npos);
  }
}

TEST_CASE("a Float16 pixel buffer may back a Float32 output only when told") {
  const CleanSwitches clean;
  @autoreleasepool {
    PackageOptions wide;
    wide.output_type = 65568;
    TinyModel tiny(wide);
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    MLMultiArray* y = surface_array(buffer, {2, 3, 8});
    MLDictionaryFeatureProvider* x = features(counting_array({2, 3, 8}));
    CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : y}) error:nullptr] == nil);
    coremlsim::configure(R"({"half_buffers_for_float32": true})");
    id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : y}) error:nullptr];
    CHECK(output(result, @"y") == y);
    CHECK(values_of(y) == expected("y", 48));
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("a locked pixel buffer in a backing is an NSError; dataPointer locks until dealloc") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    CVPixelBufferRef buffer = make_buffer({2, 3, 8});
    MLDictionaryFeatureProvider* x = features(counting_array({2, 3, 8}));
    @autoreleasepool {
      MLMultiArray* array = surface_array(buffer, {2, 3, 8});
      CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : array}) error:nullptr] != nil);
      CHECK(values_of(array) == expected("y", 48));  // the handler locks for its block only
      CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : array}) error:nullptr] != nil);
      CHECK([array dataPointer] != nullptr);
      NSError* error = nil;
      CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : array}) error:&error] == nil);
      CHECK(text_of(error).find("feature y is locked") != std::string::npos);
      CHECK(coremlsim::violations()["locked_backing"] == 1);
    }
    coremlsim::drain_releases(5000);
    MLMultiArray* again = surface_array(buffer, {2, 3, 8});
    CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : again}) error:nullptr] != nil);
    CVPixelBufferLockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
    CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : again}) error:nullptr] == nil);
    CVPixelBufferUnlockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
    CHECK([tiny.model predictionFromFeatures:x options:backed_by(@{@"y" : again}) error:nullptr] != nil);
    CVPixelBufferRelease(buffer);
  }
}

TEST_CASE("inputs are checked against the description") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    NSError* error = nil;
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 9})) error:&error] == nil);
    CHECK([error code] == MLModelErrorFeatureType);
    NSError* underlying = [[error userInfo] objectForKey:NSUnderlyingErrorKey];
    CHECK(text_of(underlying).find("(2 x 3 x 9)") != std::string::npos);
    MLDictionaryFeatureProvider* empty = [[[MLDictionaryFeatureProvider alloc] initWithDictionary:@{}
                                                                                            error:nullptr] autorelease];
    CHECK([tiny.model predictionFromFeatures:empty error:&error] == nil);
    CHECK(text_of(error).find("x is required") != std::string::npos);
    MLDictionaryFeatureProvider* text = [[[MLDictionaryFeatureProvider alloc] initWithDictionary:@{@"x" : @"words"}
                                                                                           error:nullptr] autorelease];
    CHECK([tiny.model predictionFromFeatures:text error:&error] == nil);
  }
}

TEST_CASE("backings that overlap each other or an input are refused and counted") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    RawBacking y({2, 3, 8});
    MLMultiArray* same = [[[MLMultiArray alloc] initWithDataPointer:y.payload shape:numbers({2, 3, 8})
                                                           dataType:MLMultiArrayDataTypeFloat16
                                                            strides:numbers({24, 8, 1})
                                                        deallocator:nullptr
                                                              error:nullptr] autorelease];
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8}))
                                     options:backed_by(@{@"y" : y.array, @"z" : same})
                                       error:nullptr] == nil);
    CHECK([tiny.model predictionFromFeatures:features(same) options:backed_by(@{@"y" : y.array}) error:nullptr] == nil);
    CHECK(coremlsim::violations()["aliased_backings"] == 2);
  }
}

TEST_CASE("two predictions on one model at once are counted") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    coremlsim::set_faults(R"({"latency": 200})");
    MLModel* model = tiny.model;
    const auto run = [model] {
      @autoreleasepool {
        [model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr];
      }
    };
    std::thread first(run);
    std::thread second(run);
    first.join();
    second.join();
    CHECK(coremlsim::violations()["overlap"] == 1);
  }
}

TEST_CASE("inputs stay retained until the next prediction ends; deallocators run once, on a thread of the framework") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    std::atomic<int> runs{0};
    std::atomic<bool> foreign{false};
    std::vector<_Float16> memory(48);
    const std::thread::id here = std::this_thread::get_id();
    auto* runs_pointer = &runs;
    auto* foreign_pointer = &foreign;
    @autoreleasepool {
      MLMultiArray* x = [[[MLMultiArray alloc] initWithDataPointer:memory.data() shape:numbers({2, 3, 8})
                                                          dataType:MLMultiArrayDataTypeFloat16
                                                           strides:numbers({24, 8, 1}) deallocator:^(void*) {
                                                             ++*runs_pointer;
                                                             *foreign_pointer = std::this_thread::get_id() != here;
                                                           }
                                                             error:nullptr] autorelease];
      CHECK([tiny.model predictionFromFeatures:features(x) error:nullptr] != nil);
    }
    CHECK(runs == 0);
    @autoreleasepool {
      CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 8})) error:nullptr] != nil);
    }
    coremlsim::drain_releases(5000);
    CHECK(runs == 1);
    CHECK(foreign);
  }
}
