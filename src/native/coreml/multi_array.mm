#import "coreml/multi_array.h"

#include <exception>

#import "coreml/availability.h"
#import "coreml/counters.h"
#import "coreml/guard.h"
#import "coreml/surface.h"

namespace kvbacking {
namespace {

// Dies when the framework lets go of the wrapper's deallocator block: counts wrappers and holds what they wrap.
struct WrapperHold {
  explicit WrapperHold(std::shared_ptr<void> kept) : owner(std::move(kept)) {}
  std::shared_ptr<void> owner;
  Counted<Counter::kArray> counted;
};

}  // namespace

MLMultiArrayDataType array_data_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return MLMultiArrayDataTypeFloat16;
    case DType::kFloat32:
      return MLMultiArrayDataTypeFloat32;
    case DType::kFloat64:
      return MLMultiArrayDataTypeDouble;
    case DType::kInt32:
      return MLMultiArrayDataTypeInt32;
    case DType::kInt8:
      break;
  }
  KVB_ASKED_AT_RUN_TIME_BEGIN
  return MLMultiArrayDataTypeInt8;
  KVB_ASKED_AT_RUN_TIME_END
}

std::optional<DType> dtype_of(MLMultiArrayDataType type) noexcept {
  for (DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt8}) {
    if (array_data_type(dtype) == type) return dtype;
  }
  return std::nullopt;
}

std::string data_type_name(MLMultiArrayDataType type) {
  const auto dtype = dtype_of(type);
  return dtype ? std::string(dtype_name(*dtype)) : "type " + std::to_string(static_cast<long>(type));
}

bool supports_int8_arrays() {
  @autoreleasepool {
    @try {
      const auto probe = adopt([[MLMultiArray alloc] initWithShape:@[ @1 ] dataType:array_data_type(DType::kInt8)
                                                             error:nullptr]);
      return static_cast<bool>(probe);
    } @catch (NSException* exception) {
      (void)exception;
      return false;
    }
  }
}

RetainPtr<NSArray<NSNumber*>*> number_array(const std::vector<std::int64_t>& values) {
  auto result = adopt([[NSMutableArray<NSNumber*> alloc] init]);
  for (const std::int64_t value : values) [result.get() addObject:@(static_cast<long long>(value))];
  return retain(static_cast<NSArray<NSNumber*>*>(result.get()));
}

std::vector<std::int64_t> integers(NSArray<NSNumber*>* values) {
  std::vector<std::int64_t> result;
  result.reserve([values count]);
  for (NSNumber* value in values) result.push_back([value longLongValue]);
  return result;
}

ArrayGeometry::ArrayGeometry(const Layout& layout)
    : shape(number_array(layout.shape)), strides(number_array(layout.element_strides)) {}

RetainPtr<MLMultiArray*> wrap_memory(void* data, DType dtype, const ArrayGeometry& geometry,
                                     std::shared_ptr<void> owner) {
  std::shared_ptr<WrapperHold> hold = std::make_shared<WrapperHold>(std::move(owner));
  NSError* error = nil;
  auto array = adopt([[MLMultiArray alloc] initWithDataPointer:data shape:geometry.shape.get()
                                                      dataType:array_data_type(dtype)
                                                       strides:geometry.strides.get() deallocator:^(void* bytes) {
                                                         (void)bytes;
                                                         (void)hold;
                                                       }
                                                         error:&error]);
  if (!array) throw nserror_error(ErrorCode::kAllocation, "multi_array.wrap_memory", error);
  return array;
}

RetainPtr<MLMultiArray*> wrap_pixel_buffer(CVPixelBufferRef pixel_buffer, NSArray<NSNumber*>* shape) {
  auto array = adopt([[MLMultiArray alloc] initWithPixelBuffer:pixel_buffer shape:shape]);
  if (!array) throw Error(ErrorCode::kAllocation, "[multi_array.wrap_pixel_buffer] the framework made no array");
  return array;
}

std::optional<Layout> ArrayDescription::layout() const {
  if (!dtype || shape.size() != element_strides.size()) return std::nullopt;
  for (const std::int64_t stride : element_strides) {
    if (stride < 0) return std::nullopt;
  }
  try {
    Layout result = Layout::strided(*dtype, shape, element_strides);
    if (result.overlaps_itself()) return std::nullopt;
    return result;
  } catch (const Error&) {  // overflow
    return std::nullopt;
  }
}

ArrayDescription describe(MLMultiArray* array) {
  const MLMultiArrayDataType type = [array dataType];
  return {integers([array shape]), integers([array strides]), dtype_of(type), data_type_name(type)};
}

bool same_strides(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& left,
                  const std::vector<std::int64_t>& right) noexcept {
  if (left.size() != shape.size() || right.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1 && left[i] != right[i]) return false;
  }
  return true;
}

void read_bytes(MLMultiArray* array, const ByteReader& reader) {
  if (CVPixelBufferRef pixel_buffer = [array pixelBuffer]; pixel_buffer != nullptr) {
    const PixelReadLock lock(CfPtr<CVPixelBufferRef>::retain(pixel_buffer));
    reader(lock.data(), lock.byte_count());
    return;
  }
  std::exception_ptr error;
  std::exception_ptr* const error_place = &error;
  const ByteReader* const call = &reader;
  [array getBytesWithHandler:^(const void* bytes, NSInteger size) {
    auto step = [&] { (*call)(bytes, static_cast<std::size_t>(size)); };
    detail::run_guarded(step, *error_place);
  }];
  if (error) std::rethrow_exception(error);
}

void write_bytes(MLMultiArray* array, const ByteWriter& writer) {
  std::exception_ptr error;
  std::exception_ptr* const error_place = &error;
  const ByteWriter* const call = &writer;
  [array getMutableBytesWithHandler:^(void* bytes, NSInteger size, NSArray<NSNumber*>* strides) {
    auto step = [&] { (*call)(bytes, static_cast<std::size_t>(size), integers(strides)); };
    detail::run_guarded(step, *error_place);
  }];
  if (error) std::rethrow_exception(error);
}

}  // namespace kvbacking
