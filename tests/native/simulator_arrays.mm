// MLMultiArray, feature values and providers: the rules of the API fact sheet that need no prediction.
#include <cstring>

#include "simulator_support.h"

using namespace kvb_test;

TEST_CASE("initWithDataPointer: does not copy, allows no deallocator, and refuses impossible layouts with an NSError") {
  const CleanSwitches clean;
  @autoreleasepool {
    std::vector<float> memory(6);
    MLMultiArray* array = [[[MLMultiArray alloc] initWithDataPointer:memory.data() shape:numbers({2, 3})
                                                            dataType:MLMultiArrayDataTypeFloat32
                                                             strides:numbers({3, 1})
                                                         deallocator:nullptr
                                                               error:nullptr] autorelease];
    const void** seen = static_cast<const void**>(calloc(1, sizeof(void*)));
    [array getBytesWithHandler:^(const void* bytes, NSInteger size) {
      *seen = bytes;
      CHECK(size == 24);
    }];
    CHECK(*seen == memory.data());
    free(seen);
    CHECK([array count] == 6);
    CHECK([array pixelBuffer] == nullptr);
    NSError* error = nil;
    CHECK([[MLMultiArray alloc] initWithDataPointer:memory.data() shape:numbers({2, 3})
                                           dataType:MLMultiArrayDataTypeFloat32
                                            strides:numbers({1})
                                        deallocator:nullptr
                                              error:&error] == nil);
    CHECK(text_of(error).find("differ in rank") != std::string::npos);
    CHECK([[MLMultiArray alloc] initWithShape:numbers({2, -1}) dataType:MLMultiArrayDataTypeFloat32
                                        error:&error] == nil);
    CHECK([[MLMultiArray alloc] initWithShape:numbers({1LL << 40, 1LL << 40}) dataType:MLMultiArrayDataTypeFloat32
                                        error:&error] == nil);
    CHECK([[MLMultiArray alloc] initWithShape:numbers({2}) dataType:static_cast<MLMultiArrayDataType>(7)
                                        error:&error] == nil);
  }
}

TEST_CASE("initWithShape: gives dense memory whose contents are undefined (poison)") {
  const CleanSwitches clean;
  @autoreleasepool {
    MLMultiArray* array = [[[MLMultiArray alloc] initWithShape:numbers({2, 3}) dataType:MLMultiArrayDataTypeFloat32
                                                         error:nullptr] autorelease];
    CHECK([[array strides] isEqual:numbers({3, 1})]);
    for (const double value : values_of(array)) {
      CHECK(value != value);
    }
    CHECK(exception_of(^{
            (void)[[MLMultiArray alloc] initWithShape:numbers({2, 3}) dataType:MLMultiArrayDataTypeFloat32
                                              strides:numbers({3})];
          }) == "NSInvalidArgumentException");
  }
}

TEST_CASE("initWithPixelBuffer: keeps the buffer, takes its row stride, and raises on what does not fit") {
  const CleanSwitches clean;
  const auto before = coremlsim::live_counts();
  @autoreleasepool {
    CVPixelBufferRef buffer = make_buffer({2, 3, 4});
    MLMultiArray* array = surface_array(buffer, {2, 3, 4});
    CHECK([array pixelBuffer] == buffer);
    CHECK([array dataType] == MLMultiArrayDataTypeFloat16);
    CHECK(CVPixelBufferGetBytesPerRow(buffer) == 128);
    CHECK([[array strides] isEqual:numbers({192, 64, 1})]);
    CHECK(exception_of(^{
            (void)[[MLMultiArray alloc] initWithPixelBuffer:buffer shape:numbers({3, 2, 5})];
          }) == "NSInvalidArgumentException");
    CVPixelBufferRef single = nullptr;
    REQUIRE(CVPixelBufferCreate(nullptr, 4, 6, kCVPixelFormatType_OneComponent32Float, nullptr, &single) == 0);
    CHECK(exception_of(^{
            (void)[[MLMultiArray alloc] initWithPixelBuffer:single shape:numbers({6, 4})];
          }) == "NSInvalidArgumentException");
    CVPixelBufferRelease(single);
    CVPixelBufferRelease(buffer);
    CHECK([array pixelBuffer] == buffer);  // still the array's own reference
  }
  coremlsim::drain_releases(5000);
  CHECK(coremlsim::live_counts() == before);
}

TEST_CASE("getMutableBytesWithHandler: may switch to other memory with other strides") {
  const CleanSwitches clean;
  @autoreleasepool {
    coremlsim::configure(R"({"mutable_bytes_swap": true})");
    RawBacking raw({2, 3, 8});
    MLMultiArray* array = raw.array;
    std::memset(raw.payload, 0, raw.byte_count);
    const void* payload = raw.payload;
    [array getMutableBytesWithHandler:^(void* bytes, NSInteger, NSArray<NSNumber*>* strides) {
      CHECK(bytes != payload);
      CHECK([strides isEqual:numbers({192, 64, 1})]);
    }];
    CHECK([[array strides] isEqual:numbers({192, 64, 1})]);
    CHECK(values_of(array) == std::vector<double>(48, 0.0));
    coremlsim::drain_releases(5000);
    CHECK(raw.deallocations() == 1);  // the old storage was let go of
  }
}

TEST_CASE("subscripts, concatenation and transfer work on logical elements") {
  const CleanSwitches clean;
  @autoreleasepool {
    MLMultiArray* array = counting_array({2, 3});
    CHECK([[array objectAtIndexedSubscript:4] doubleValue] == 4.0);
    CHECK([[array objectForKeyedSubscript:numbers({1, 2})] doubleValue] == 5.0);
    [array setObject:[NSNumber numberWithInt:9] forKeyedSubscript:numbers({0, 1})];
    CHECK(values_of(array)[1] == 9.0);
    CHECK(exception_of(^{
            (void)[array objectAtIndexedSubscript:6];
          }) == "NSRangeException");
    MLMultiArray* joined = [MLMultiArray multiArrayByConcatenatingMultiArrays:@[ array, array ] alongAxis:-1
                                                                     dataType:MLMultiArrayDataTypeFloat32];
    CHECK([[joined shape] isEqual:numbers({2, 6})]);
    CHECK(values_of(joined) == std::vector<double>{0, 9, 2, 0, 9, 2, 3, 4, 5, 3, 4, 5});
    CHECK(exception_of(^{
            [MLMultiArray multiArrayByConcatenatingMultiArrays:@[ array, counting_array({3, 3}) ] alongAxis:1
                                                      dataType:MLMultiArrayDataTypeFloat32];
          }) == "NSInvalidArgumentException");
    CHECK(exception_of(^{
            [array transferToMultiArray:counting_array({3, 2})];
          }) == "NSInvalidArgumentException");
    MLMultiArray* wide = [[[MLMultiArray alloc] initWithShape:numbers({2, 3}) dataType:MLMultiArrayDataTypeFloat32
                                                        error:nullptr] autorelease];
    [array transferToMultiArray:wide];
    CHECK(values_of(wide) == values_of(array));
  }
}

TEST_CASE("feature values never convert, and providers refuse what is not a feature") {
  const CleanSwitches clean;
  @autoreleasepool {
    MLFeatureValue* number = [MLFeatureValue featureValueWithDouble:2.5];
    CHECK([number doubleValue] == 2.5);
    CHECK([number int64Value] == 0);
    CHECK([number multiArrayValue] == nil);
    CHECK([[number stringValue] isEqual:@""]);
    CHECK([[number dictionaryValue] count] == 0);
    CHECK([[MLFeatureValue undefinedFeatureValueWithType:MLFeatureTypeMultiArray] isUndefined]);
    NSError* error = nil;
    CHECK([[MLDictionaryFeatureProvider alloc] initWithDictionary:@{@"x" : [NSNull null]} error:&error] == nil);
    CHECK([error code] == MLModelErrorFeatureType);
    MLDictionaryFeatureProvider* provider =
        [[[MLDictionaryFeatureProvider alloc] initWithDictionary:@{
          @"a" : @2.5,
          @"b" : @"text"
        }
                                                           error:nullptr] autorelease];
    CHECK([[provider featureValueForName:@"a"] type] == MLFeatureTypeDouble);
    CHECK([[provider featureValueForName:@"b"] type] == MLFeatureTypeString);
    CHECK([provider featureValueForName:@"c"] == nil);
    NSDictionary* uneven = @{@"a" : @[ @1 ], @"b" : @[ @1, @2 ]};
    CHECK([[MLArrayBatchProvider alloc] initWithDictionary:uneven error:&error] == nil);
  }
}
