// Compiling, loading, describing; states, functions, flexible shapes; plans; hidden API.
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <thread>

#include "simulator_support.h"

using namespace kvb_test;

namespace {

NSURL* url_of(const std::filesystem::path& path) {
  return [NSURL fileURLWithPath:[NSString stringWithUTF8String:path.c_str()]];
}

// Lets a completion handler on another thread hand over one object.
class Waiter {
 public:
  void put(id value) {
    const std::lock_guard lock(mutex_);
    value_ = [value retain];
    done_ = true;
    ready_.notify_all();
  }
  id take() {
    std::unique_lock lock(mutex_);
    REQUIRE(ready_.wait_for(lock, std::chrono::seconds(30), [&] { return done_; }));
    return [value_ autorelease];
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  id value_ = nil;
  bool done_ = false;
};

}  // namespace

TEST_CASE("compiling writes to a temporary folder; only the compiled form loads") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    const std::filesystem::path compiled = [[tiny.compiled path] UTF8String];
    CHECK(compiled.extension() == ".mlmodelc");
    CHECK(compiled.parent_path() != tiny.folder.path());
    NSError* error = nil;
    CHECK([MLModel modelWithContentsOfURL:url_of(tiny.folder.path() / "tiny.mlpackage") error:&error] == nil);
    CHECK(text_of(error).find("not a compiled model") != std::string::npos);
    CHECK([MLModel modelWithContentsOfURL:url_of(tiny.folder.path() / "absent.mlmodelc") error:&error] == nil);
    CHECK([error code] == MLModelErrorIO);
    CHECK([MLModel compileModelAtURL:url_of(tiny.folder.path() / "absent.mlpackage") error:&error] == nil);
    CHECK([error code] == MLModelErrorIO);
    std::ofstream(tiny.folder.path() / "broken.mlmodel") << "no protobuf at all";
    CHECK([MLModel compileModelAtURL:url_of(tiny.folder.path() / "broken.mlmodel") error:&error] == nil);
    CHECK(name_of([error domain]) == "com.apple.CoreML");
    Waiter waiter;
    auto* pointer = &waiter;
    [MLModel compileModelAtURL:url_of(tiny.folder.path() / "tiny.mlpackage") completionHandler:^(NSURL* url, NSError*) {
      pointer->put(url);
    }];
    NSURL* again = waiter.take();
    CHECK([MLModel modelWithContentsOfURL:again error:&error] != nil);
    std::filesystem::remove_all(std::filesystem::path([[again path] UTF8String]).parent_path());
  }
}

TEST_CASE("descriptions say what the package declares") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    MLModelDescription* description = [tiny.model modelDescription];
    MLFeatureDescription* x = [[description inputDescriptionsByName] objectForKey:@"x"];
    CHECK([x type] == MLFeatureTypeMultiArray);
    CHECK_FALSE([x isOptional]);
    CHECK([[[x multiArrayConstraint] shape] isEqual:numbers({2, 3, 8})]);
    CHECK([[x multiArrayConstraint] dataType] == MLMultiArrayDataTypeFloat16);
    CHECK([[description outputDescriptionsByName] count] == 2);
    CHECK([[description stateDescriptionsByName] count] == 0);
    CHECK([x stateConstraint] == nil);
  }
}

TEST_CASE("enumerated input shapes: others are refused, and the outputs have no shape of their own") {
  const CleanSwitches clean;
  @autoreleasepool {
    PackageOptions options;
    options.enumerated = {{2, 3, 8}, {2, 3, 4}};
    TinyModel tiny(options);
    MLFeatureDescription* x = [[[tiny.model modelDescription] inputDescriptionsByName] objectForKey:@"x"];
    MLMultiArrayShapeConstraint* constraint = [[x multiArrayConstraint] shapeConstraint];
    CHECK([constraint type] == MLMultiArrayShapeConstraintTypeEnumerated);
    CHECK([[constraint enumeratedShapes] count] == 2);
    MLFeatureDescription* y = [[[tiny.model modelDescription] outputDescriptionsByName] objectForKey:@"y"];
    CHECK([[[y multiArrayConstraint] shape] count] == 0);
    NSError* error = nil;
    CHECK([tiny.model predictionFromFeatures:features(counting_array({2, 3, 5})) error:&error] == nil);
    NSError* underlying = [[error userInfo] objectForKey:NSUnderlyingErrorKey];
    CHECK(text_of(underlying).find("not in enumerated set of allowed shapes") != std::string::npos);
  }
}

TEST_CASE("a state starts at zero, is updated in place, and its view ends with the block") {
  const CleanSwitches clean;
  @autoreleasepool {
    PackageOptions options;
    options.with_state = true;
    TinyModel tiny(options);
    MLState* state = [[tiny.model newState] autorelease];
    std::vector<double> seen;
    auto* seen_pointer = &seen;
    __block MLMultiArray* kept = nil;
    [state getMultiArrayForStateNamed:@"s" handler:^(MLMultiArray* buffer) {
      *seen_pointer = values_of(buffer);
      kept = [buffer retain];
    }];
    CHECK(seen == std::vector<double>(48, 0.0));
    CHECK(exception_of(^{
            (void)[kept dataPointer];
          }) == "NSInvalidArgumentException");
    [kept release];
    CHECK(exception_of(^{
            [state getMultiArrayForStateNamed:@"nobody" handler:^(MLMultiArray*){
            }];
          }) == "NSInvalidArgumentException");
    MLDictionaryFeatureProvider* x = features(counting_array({2, 3, 8}));
    NSError* error = nil;
    for (int i = 1; i <= 2; ++i) {
      id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:x usingState:state error:&error];
      REQUIRE_MESSAGE(result != nil, text_of(error));
      CHECK(values_of([[result featureValueForName:@"y"] multiArrayValue])[47] == 47.0 * i);
    }
    MLState* other = [[tiny.model newState] autorelease];
    id<MLFeatureProvider> result = [tiny.model predictionFromFeatures:x usingState:other error:&error];
    CHECK(values_of([[result featureValueForName:@"y"] multiArrayValue])[47] == 47.0);
  }
}

TEST_CASE("two predictions on one state at once are refused and counted") {
  const CleanSwitches clean;
  @autoreleasepool {
    PackageOptions options;
    options.with_state = true;
    TinyModel tiny(options);
    MLState* state = [[tiny.model newState] autorelease];
    coremlsim::set_faults(R"({"latency": 300})");
    std::atomic<int> failures{0};
    auto* model = tiny.model;
    const auto run = [model, state, &failures] {
      @autoreleasepool {
        if ([model predictionFromFeatures:features(counting_array({2, 3, 8})) usingState:state error:nullptr] == nil) {
          ++failures;
        }
      }
    };
    std::thread first(run);
    std::thread second(run);
    first.join();
    second.join();
    CHECK(failures == 1);
    CHECK(coremlsim::violations()["state_overlap"] == 1);
  }
}

TEST_CASE("functions are listed by the asset and chosen by the configuration") {
  const CleanSwitches clean;
  @autoreleasepool {
    PackageOptions options;
    options.functions = {"small", "large"};
    TinyModel tiny(options);
    MLModelAsset* asset = [MLModelAsset modelAssetWithURL:tiny.compiled error:nullptr];
    Waiter waiter;
    auto* pointer = &waiter;
    [asset functionNamesWithCompletionHandler:^(NSArray<NSString*>* names, NSError*) {
      pointer->put(names);
    }];
    NSArray* names = waiter.take();
    CHECK([names isEqual:@[ @"small", @"large" ]]);
    MLModelConfiguration* configuration = [[[MLModelConfiguration alloc] init] autorelease];
    [configuration setFunctionName:@"large"];
    NSError* error = nil;
    CHECK([MLModel modelWithContentsOfURL:tiny.compiled configuration:configuration error:&error] != nil);
    [configuration setFunctionName:@"absent"];
    CHECK([MLModel modelWithContentsOfURL:tiny.compiled configuration:configuration error:&error] == nil);
    CHECK(text_of(error).find("small, large") != std::string::npos);
  }
}

TEST_CASE("a compute plan places every operation") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    Waiter waiter;
    auto* pointer = &waiter;
    [MLComputePlan loadContentsOfURL:tiny.compiled configuration:[[[MLModelConfiguration alloc] init] autorelease]
                   completionHandler:^(MLComputePlan* plan, NSError*) {
                     pointer->put(plan);
                   }];
    MLComputePlan* plan = waiter.take();
    MLModelStructureProgramFunction* main = [[[[plan modelStructure] program] functions] objectForKey:@"main"];
    REQUIRE(main != nil);
    NSMutableSet* operators = [NSMutableSet set];
    for (MLModelStructureProgramOperation* operation in [[main block] operations]) {
      [operators addObject:[operation operatorName]];
      if (![[operation operatorName] isEqual:@"const"]) {
        CHECK([plan computeDeviceUsageForMLProgramOperation:operation] != nil);
        CHECK([[plan estimatedCostOfMLProgramOperation:operation] weight] >= 0.0);
      }
    }
    CHECK([operators containsObject:@"add"]);
    CHECK([operators containsObject:@"mul"]);
    CHECK([MLAllComputeDevices() count] == 3);
  }
}

TEST_CASE("hidden API is absent: classes, selectors, and calls to them") {
  const CleanSwitches clean;
  @autoreleasepool {
    TinyModel tiny;
    CHECK(NSClassFromString(@"MLState") != Nil);
    CHECK([MLModel instancesRespondToSelector:@selector(newState)]);
    coremlsim::hide_api("14");
    CHECK(NSClassFromString(@"MLState") == Nil);
    CHECK(NSClassFromString(@"MLComputePlan") == Nil);
    CHECK(NSClassFromString(@"MLModel") != Nil);
    CHECK_FALSE([MLModel instancesRespondToSelector:@selector(newState)]);
    CHECK_FALSE([tiny.model respondsToSelector:@selector(newState)]);
    CHECK([tiny.model respondsToSelector:@selector(modelDescription)]);
    CHECK_FALSE([MLModelAsset respondsToSelector:@selector(modelAssetWithURL:error:)]);
    MLModel* model = tiny.model;
    CHECK(exception_of(^{
            (void)[[model newState] autorelease];
          }) == "NSInvalidArgumentException");
    coremlsim::hide_api("15");
    CHECK(NSClassFromString(@"MLState") != Nil);
    CHECK([tiny.model respondsToSelector:@selector(newState)]);
    CHECK([[[MLMultiArray alloc] initWithShape:numbers({1}) dataType:MLMultiArrayDataTypeInt8
                                         error:nullptr] autorelease] == nil);
    coremlsim::hide_api("");
    CHECK([[[MLMultiArray alloc] initWithShape:numbers({1}) dataType:MLMultiArrayDataTypeInt8
                                         error:nullptr] autorelease] != nil);
    CHECK_THROWS_AS(coremlsim::hide_api("13"), std::invalid_argument);
  }
}
