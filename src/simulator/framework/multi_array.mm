#include "framework/multi_array.h"

#include <Block.h>

#include <memory>
#include <numeric>
#include <utility>

#include "framework/api_gate.h"
#include "framework/control.h"
#include "framework/errors.h"
#include "framework/faults.h"
#include "framework/pixel_buffer.h"

using namespace coremlsim;

namespace {

constexpr std::size_t kMaxRank = 32;

// Empty when shape, type and strides make an array; otherwise what is wrong.
std::string check_layout(const std::vector<std::int64_t>& shape, MLMultiArrayDataType type,
                         const std::vector<std::int64_t>& strides) {
  if (!engine_type(type)) {
    return "data type " + std::to_string(type) + " is not supported";
  }
  if (shape.size() != strides.size()) {
    return "shape " + describe(shape) + " and strides " + describe(strides) + " differ in rank";
  }
  if (shape.size() > kMaxRank) {
    return "rank " + std::to_string(shape.size()) + " is not supported";
  }
  std::int64_t span = static_cast<std::int64_t>(element_byte_width(type));
  for (std::size_t i = 0; i < shape.size(); ++i) {
    std::int64_t reach = 0;
    if (shape[i] < 0 || strides[i] < 0 || __builtin_mul_overflow(shape[i], strides[i], &reach) ||
        __builtin_mul_overflow(reach, 8, &reach) || __builtin_add_overflow(span, reach, &span)) {
      return "shape " + describe(shape) + " with strides " + describe(strides) + " is not a valid layout";
    }
  }
  return {};
}

}  // namespace

@implementation MLMultiArray

CORE_ML_SIMULATOR_GATED

CORE_ML_SIMULATOR_NO_CODING

- (instancetype)init {
  if ((self = [super init]) != nil) {
    _storage = new MLMultiArrayStorage;
    count_live(Live::kArray, 1);
  }
  return self;
}

// The reference count itself lies in uninstrumented code; the last reference often goes on the framework's thread.
- (oneway void)release {
  if (_storage != nullptr) {
    _storage->releases.fetch_add(1, std::memory_order_release);
  }
  [super release];
}

- (void)dealloc {
  if (_storage != nullptr) {
    (void)_storage->releases.load(std::memory_order_acquire);
    invalidate(self);
    delete _storage;
    count_live(Live::kArray, -1);
  }
  [super dealloc];
}

- (nullable instancetype)initWithShape:(NSArray<NSNumber*>*)shape
                              dataType:(MLMultiArrayDataType)dataType
                                 error:(NSError**)error {
  [self release];
  const auto extents = to_vector(shape);
  const auto strides = dense_strides(extents);
  if (const std::string problem = check_layout(extents, dataType, strides); !problem.empty()) {
    fail(error, MLModelErrorGeneric, "Failed to create an MLMultiArray: " + problem);
    return nil;
  }
  MLMultiArray* array = make_array(extents, dataType, strides);
  if (array == nil) {
    fail(error, MLModelErrorGeneric, "Failed to allocate memory for an MLMultiArray of shape " + describe(extents));
    return nil;
  }
  return [array retain];
}

- (instancetype)initWithShape:(NSArray<NSNumber*>*)shape
                     dataType:(MLMultiArrayDataType)dataType
                      strides:(NSArray<NSNumber*>*)strides {
  [self release];
  const auto extents = to_vector(shape);
  const auto steps = to_vector(strides);
  if (const std::string problem = check_layout(extents, dataType, steps); !problem.empty()) {
    raise_invalid_argument("Failed to create an MLMultiArray: " + problem);
  }
  MLMultiArray* array = make_array(extents, dataType, steps);
  if (array == nil) {
    @throw [NSException exceptionWithName:NSMallocException reason:@"out of memory" userInfo:nil];
  }
  return [array retain];
}

- (nullable instancetype)initWithDataPointer:(void*)dataPointer
                                       shape:(NSArray<NSNumber*>*)shape
                                    dataType:(MLMultiArrayDataType)dataType
                                     strides:(NSArray<NSNumber*>*)strides
                                 deallocator:(void (^)(void*))deallocator
                                       error:(NSError**)error {
  const auto extents = to_vector(shape);
  const auto steps = to_vector(strides);
  std::string problem = check_layout(extents, dataType, steps);
  if (problem.empty() && dataPointer == nullptr) {
    problem = "the data pointer is NULL";
  }
  if (!problem.empty()) {
    fail(error, MLModelErrorGeneric, "Failed to create an MLMultiArray: " + problem);
    [self release];
    return nil;
  }
  if ((self = [self init]) != nil) {
    set_layout(self, extents, steps, dataType);
    _storage->memory.bytes = dataPointer;
    _storage->memory.byte_count = span_byte_count(extents, steps, element_byte_width(dataType));
    if (deallocator != nullptr) {
      _storage->memory.deallocator = Block_copy(deallocator);
    }
  }
  return self;
}

- (instancetype)initWithPixelBuffer:(CVPixelBufferRef)pixelBuffer shape:(NSArray<NSNumber*>*)shape {
  const auto extents = to_vector(shape);
  PixelBuffer& buffer = pixel_buffer(pixelBuffer);
  MLMultiArrayDataType type = MLMultiArrayDataTypeFloat16;
  if (buffer.format == kCVPixelFormatType_OneComponent8 && api_available(26)) {
    type = MLMultiArrayDataTypeInt8;
  } else if (buffer.format != kCVPixelFormatType_OneComponent16Half) {
    [self release];
    raise_invalid_argument("the pixel buffer's format cannot hold an MLMultiArray; use OneComponent16Half");
  }
  const std::int64_t rows = extents.empty() ? 0
                                            : std::accumulate(extents.begin(), extents.end() - 1, std::int64_t{1},
                                                              [](auto a, auto b) { return a * b; });
  if (extents.empty() || extents.back() != static_cast<std::int64_t>(buffer.width) ||
      rows != static_cast<std::int64_t>(buffer.height)) {
    const std::string size = std::to_string(buffer.width) + " x " + std::to_string(buffer.height);
    [self release];
    raise_invalid_argument("shape " + describe(extents) + " does not fit a pixel buffer of width x height " + size +
                           ": the last dimension must be the width, the product of the others the height");
  }
  if ((self = [self init]) != nil) {
    const std::size_t width = element_byte_width(type);
    std::vector<std::int64_t> strides(extents.size(), 1);
    if (extents.size() > 1) {
      strides[extents.size() - 2] = static_cast<std::int64_t>(buffer.bytes_per_row / width);
      for (std::size_t i = extents.size() - 2; i > 0; --i) {
        strides[i - 1] = strides[i] * extents[i];
      }
    }
    set_layout(self, extents, strides, type);
    _storage->memory.bytes = buffer.bytes();
    _storage->memory.byte_count = buffer.byte_count();
    _storage->memory.buffer = CVPixelBufferRetain(pixelBuffer);
    _storage->generation_at_creation = buffer.lock_generation();
    buffer.array_created();
  }
  return self;
}

- (MLMultiArrayDataType)dataType {
  return _storage->dtype;
}
- (NSArray<NSNumber*>*)shape {
  return _storage->shape_object.borrow();
}
- (NSArray<NSNumber*>*)strides {
  return _storage->strides_object.borrow();
}
- (NSInteger)count {
  return std::accumulate(_storage->shape.begin(), _storage->shape.end(), NSInteger{1},
                         [](auto a, auto b) { return a * static_cast<NSInteger>(b); });
}
- (CVPixelBufferRef)pixelBuffer {
  return _storage->memory.buffer;
}

// The deprecated way to the bytes locks a pixel buffer until the array goes or switches its storage.
- (void*)dataPointer {
  const mil::TensorView view = view_of(self);
  if (_storage->memory.buffer != nullptr && !std::exchange(_storage->sticky_lock, true)) {
    CVPixelBufferLockBaseAddress(_storage->memory.buffer, 0);
  }
  return view.data;
}

- (void)getBytesWithHandler:(void(NS_NOESCAPE ^)(const void* bytes, NSInteger size))handler {
  const mil::TensorView view = view_of(self);
  CVPixelBufferRef buffer = _storage->memory.buffer;
  if (buffer != nullptr) {
    CVPixelBufferLockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
  }
  handler(view.data, static_cast<NSInteger>(_storage->memory.byte_count));
  if (buffer != nullptr) {
    CVPixelBufferUnlockBaseAddress(buffer, kCVPixelBufferLock_ReadOnly);
  }
}

- (void)getMutableBytesWithHandler:(void(NS_NOESCAPE ^)(void* mutableBytes, NSInteger size,
                                                        NSArray<NSNumber*>* strides))handler {
  mil::TensorView view = view_of(self);
  if (options().mutable_bytes_swap) {
    MLMultiArray* other = make_array(_storage->shape, _storage->dtype,
                                     padded_strides(_storage->shape, element_byte_width(_storage->dtype)));
    if (other != nil) {
      mil::convert(view, view_of(other));
      // The other array's memory changes hands.
      replace_memory(self, std::exchange(other->_storage->memory, {}), other->_storage->strides);
      view = view_of(self);
    }
  }
  CVPixelBufferRef buffer = _storage->memory.buffer;
  if (buffer != nullptr) {
    CVPixelBufferLockBaseAddress(buffer, 0);
  }
  handler(view.data, static_cast<NSInteger>(_storage->memory.byte_count), [self strides]);
  if (buffer != nullptr) {
    CVPixelBufferUnlockBaseAddress(buffer, 0);
  }
}

+ (instancetype)multiArrayByConcatenatingMultiArrays:(NSArray<MLMultiArray*>*)multiArrays
                                           alongAxis:(NSInteger)axis
                                            dataType:(MLMultiArrayDataType)dataType {
  if ([multiArrays count] == 0 || !engine_type(dataType)) {
    raise_invalid_argument("concatenation needs at least one array and a supported data type");
  }
  std::vector<std::int64_t> shape = [multiArrays objectAtIndex:0]->_storage -> shape;
  const auto rank = static_cast<NSInteger>(shape.size());
  const NSInteger along = axis < 0 ? axis + rank : axis;
  if (along < 0 || along >= rank) {
    raise_invalid_argument("axis " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
  }
  const auto where = static_cast<std::size_t>(along);
  shape[where] = 0;
  for (MLMultiArray* part in multiArrays) {
    auto extents = part->_storage->shape;
    if (static_cast<NSInteger>(extents.size()) != rank) {
      raise_invalid_argument("the arrays differ in rank");
    }
    shape[where] += std::exchange(extents[where], shape[where]);
    extents[where] = shape[where];
    if (extents != shape) {
      raise_invalid_argument("the arrays' shapes are not compatible: " + describe(part->_storage->shape));
    }
  }
  MLMultiArray* result = make_array(shape, dataType, dense_strides(shape));
  if (result == nil) {
    @throw [NSException exceptionWithName:NSMallocException reason:@"out of memory" userInfo:nil];
  }
  const mil::TensorView whole = view_of(result);
  std::int64_t offset = 0;
  for (MLMultiArray* part in multiArrays) {
    mil::TensorView slice = whole;
    slice.shape = part->_storage->shape;
    slice.data = static_cast<std::byte*>(whole.data) +
                 static_cast<std::size_t>(offset * whole.strides[where]) * element_byte_width(dataType);
    mil::convert(view_of(part), slice);
    offset += part->_storage->shape[where];
  }
  return result;
}

- (std::size_t)elementOffsetOfLinearIndex:(NSInteger)index {
  if (index < 0 || index >= [self count]) {
    [NSException raise:NSRangeException format:@"index %ld is beyond the array's %ld elements",
                                               static_cast<long>(index), static_cast<long>([self count])];
  }
  std::int64_t rest = index;
  std::int64_t offset = 0;
  for (std::size_t i = _storage->shape.size(); i-- > 0;) {
    offset += rest % _storage->shape[i] * _storage->strides[i];
    rest /= _storage->shape[i];
  }
  return static_cast<std::size_t>(offset);
}

- (NSInteger)linearIndexOfKey:(NSArray<NSNumber*>*)key {
  const auto position = to_vector(key);
  std::int64_t index = 0;
  if (position.size() != _storage->shape.size()) {
    raise_invalid_argument("a subscript of rank " + std::to_string(position.size()) + " for an array of rank " +
                           std::to_string(_storage->shape.size()));
  }
  for (std::size_t i = 0; i < position.size(); ++i) {
    if (position[i] < 0 || position[i] >= _storage->shape[i]) {
      [NSException raise:NSRangeException format:@"subscript %s is out of range", describe(position).c_str()];
    }
    index = index * _storage->shape[i] + position[i];
  }
  return static_cast<NSInteger>(index);
}

- (mil::TensorView)viewOfElement:(NSInteger)index {
  auto* base = static_cast<std::byte*>([self dataPointer]);
  return {*engine_type(_storage->dtype),
          {},
          {},
          base + [self elementOffsetOfLinearIndex:index] * element_byte_width(_storage->dtype)};
}

- (NSNumber*)objectAtIndexedSubscript:(NSInteger)index {
  double value = 0;
  mil::convert([self viewOfElement : index], { mil::DataType::kFloat64, {}, {}, &value });
  return [NSNumber numberWithDouble:value];
}
- (NSNumber*)objectForKeyedSubscript:(NSArray<NSNumber*>*)key {
  return [self objectAtIndexedSubscript:[self linearIndexOfKey:key]];
}
- (void)setObject:(NSNumber*)object atIndexedSubscript:(NSInteger)index {
  double value = [object doubleValue];
  mil::convert({mil::DataType::kFloat64, {}, {}, &value}, [self viewOfElement:index]);
}
- (void)setObject:(NSNumber*)object forKeyedSubscript:(NSArray<NSNumber*>*)key {
  [self setObject:object atIndexedSubscript:[self linearIndexOfKey:key]];
}

- (void)transferToMultiArray:(MLMultiArray*)destinationMultiArray {
  if (destinationMultiArray->_storage->shape != _storage->shape) {
    raise_invalid_argument("cannot transfer shape " + describe(_storage->shape) + " to shape " +
                           describe(destinationMultiArray->_storage->shape));
  }
  mil::convert(view_of(self), view_of(destinationMultiArray));
}

@end
