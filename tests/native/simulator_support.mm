#include "simulator_support.h"

#include <cstring>
#include <numeric>

namespace kvb_test {

namespace {
constexpr std::size_t kMargin = 256;
std::int64_t product(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, [](auto a, auto b) { return a * b; });
}
}  // namespace

NSURL* compile_package(const std::filesystem::path& package) {
  NSError* error = nil;
  NSURL* source = [NSURL fileURLWithPath:[NSString stringWithUTF8String:package.c_str()]];
  NSURL* compiled = [MLModel compileModelAtURL:source error:&error];
  REQUIRE_MESSAGE(compiled != nil, text_of(error));
  return compiled;
}

TinyModel::TinyModel(const PackageOptions& options) : package(options) {
  compiled = [compile_package(write_package(folder.path(), options)) retain];
  NSError* error = nil;
  model = [[MLModel modelWithContentsOfURL:compiled error:&error] retain];
  REQUIRE_MESSAGE(model != nil, text_of(error));
}

TinyModel::~TinyModel() {
  std::error_code ignored;
  std::filesystem::remove_all(std::filesystem::path([[compiled path] UTF8String]).parent_path(), ignored);
  [model release];
  [compiled release];
}

NSArray<NSNumber*>* numbers(const std::vector<std::int64_t>& values) {
  NSMutableArray* result = [NSMutableArray array];
  for (const std::int64_t value : values) {
    [result addObject:[NSNumber numberWithLongLong:value]];
  }
  return result;
}

std::string text_of(NSError* error) {
  return error == nil ? "(no error)" : std::string([[error localizedDescription] UTF8String]);
}
std::string name_of(NSString* text) { return text == nil ? "" : std::string([text UTF8String]); }

std::string exception_of(void (^block)(void)) {
  @try {
    block();
  } @catch (NSException* exception) {
    return name_of([exception name]);
  }
  return "";
}

MLMultiArray* counting_array(const std::vector<std::int64_t>& shape) {
  MLMultiArray* array = [[[MLMultiArray alloc] initWithShape:numbers(shape) dataType:MLMultiArrayDataTypeFloat16
                                                       error:nullptr] autorelease];
  auto* values = static_cast<_Float16*>([array dataPointer]);
  for (std::int64_t i = 0; i < product(shape); ++i) {
    values[i] = static_cast<_Float16>(static_cast<double>(i));
  }
  return array;
}

MLDictionaryFeatureProvider* features(MLMultiArray* x) {
  return [[[MLDictionaryFeatureProvider alloc] initWithDictionary:@{@"x" : x} error:nullptr] autorelease];
}

RawBacking::RawBacking(const std::vector<std::int64_t>& shape)
    : memory(std::make_shared<Memory>()), byte_count(static_cast<std::size_t>(product(shape)) * 2) {
  memory->block.assign(byte_count + 2 * kMargin, 0x77);
  payload = memory->block.data() + kMargin;
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * shape[i];
  }
  const std::shared_ptr<Memory> kept = memory;
  array = [[MLMultiArray alloc] initWithDataPointer:payload shape:numbers(shape) dataType:MLMultiArrayDataTypeFloat16
                                            strides:numbers(strides) deallocator:^(void*) {
                                              ++kept->deallocations;
                                            }
                                              error:nullptr];
}

RawBacking::~RawBacking() {
  [array release];
  coremlsim::drain_releases(5000);
}

CVPixelBufferRef make_buffer(const std::vector<std::int64_t>& shape) {
  NSDictionary* attributes = @{(NSString*)kCVPixelBufferIOSurfacePropertiesKey : @{}};
  CVPixelBufferRef buffer = nullptr;
  const std::int64_t rows = product(shape) / shape.back();
  const CVReturn status =
      CVPixelBufferCreate(kCFAllocatorDefault, static_cast<size_t>(shape.back()), static_cast<size_t>(rows),
                          kCVPixelFormatType_OneComponent16Half, (CFDictionaryRef)attributes, &buffer);
  REQUIRE(status == kCVReturnSuccess);
  return buffer;
}

MLMultiArray* surface_array(CVPixelBufferRef buffer, const std::vector<std::int64_t>& shape) {
  return [[[MLMultiArray alloc] initWithPixelBuffer:buffer shape:numbers(shape)] autorelease];
}

MLPredictionOptions* backed_by(NSDictionary<NSString*, id>* backings) {
  MLPredictionOptions* options = [[[MLPredictionOptions alloc] init] autorelease];
  [options setOutputBackings:backings];
  return options;
}

std::vector<double> values_of(MLMultiArray* array) {
  std::vector<double> values;
  NSArray<NSNumber*>* shape = [array shape];
  NSArray<NSNumber*>* strides = [array strides];
  const bool half = [array dataType] == MLMultiArrayDataTypeFloat16;
  auto* result = &values;
  [array getBytesWithHandler:^(const void* bytes, NSInteger) {
    for (NSInteger i = 0; i < [array count]; ++i) {
      NSInteger rest = i;
      NSInteger offset = 0;
      for (NSUInteger k = [shape count]; k-- > 0;) {
        const NSInteger extent = [[shape objectAtIndex:k] integerValue];
        offset += rest % extent * [[strides objectAtIndex:k] integerValue];
        rest /= extent;
      }
      result->push_back(half ? static_cast<double>(static_cast<const _Float16*>(bytes)[offset])
                             : static_cast<double>(static_cast<const float*>(bytes)[offset]));
    }
  }];
  return values;
}

std::vector<double> expected(const std::string& output, std::size_t count) {
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    values.push_back(output == "y" ? static_cast<double>(i) + 1 : static_cast<double>(i) * 2);
  }
  return values;
}

}  // namespace kvb_test
