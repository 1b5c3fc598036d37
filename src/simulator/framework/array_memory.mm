// Layouts and memory behind MLMultiArray objects, for the framework's own use (multi_array.h).
#include <CoreML/CoreML.h>

#include <Block.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "framework/control.h"
#include "framework/errors.h"
#include "framework/faults.h"
#include "framework/multi_array.h"
#include "framework/pixel_buffer.h"
#include "framework/release_thread.h"

namespace coremlsim {
namespace {

constexpr std::size_t kGuardByteCount = 64;

}  // namespace

std::optional<mil::DataType> engine_type(MLMultiArrayDataType type) noexcept {
  switch (type) {
    case MLMultiArrayDataTypeDouble:
      return mil::DataType::kFloat64;
    case MLMultiArrayDataTypeFloat32:
      return mil::DataType::kFloat32;
    case MLMultiArrayDataTypeFloat16:
      return mil::DataType::kFloat16;
    case MLMultiArrayDataTypeInt32:
      return mil::DataType::kInt32;
    case MLMultiArrayDataTypeInt8:
      return api_available(26) ? std::optional<mil::DataType>(mil::DataType::kInt8) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<MLMultiArrayDataType> array_type(mil::DataType type) noexcept {
  switch (type) {
    case mil::DataType::kFloat64:
      return MLMultiArrayDataTypeDouble;
    case mil::DataType::kFloat32:
      return MLMultiArrayDataTypeFloat32;
    case mil::DataType::kFloat16:
      return MLMultiArrayDataTypeFloat16;
    case mil::DataType::kInt32:
      return MLMultiArrayDataTypeInt32;
    case mil::DataType::kInt8:
      return api_available(26) ? std::optional<MLMultiArrayDataType>(MLMultiArrayDataTypeInt8) : std::nullopt;
    default:
      return std::nullopt;
  }
}

std::size_t element_byte_width(MLMultiArrayDataType type) noexcept {
  return (static_cast<std::size_t>(type) & 0xff) / 8;
}

const char* type_name(MLMultiArrayDataType type) noexcept {
  switch (type) {
    case MLMultiArrayDataTypeDouble:
      return "Double";
    case MLMultiArrayDataTypeFloat32:
      return "Float32";
    case MLMultiArrayDataTypeFloat16:
      return "Float16";
    case MLMultiArrayDataTypeInt32:
      return "Int32";
    case MLMultiArrayDataTypeInt8:
      return "Int8";
  }
  return "unknown";
}

std::vector<std::int64_t> to_vector(NSArray<NSNumber*>* numbers) {
  std::vector<std::int64_t> result;
  result.reserve([numbers count]);
  for (NSNumber* number in numbers) {
    result.push_back([number longLongValue]);
  }
  return result;
}

NSArray<NSNumber*>* to_array(const std::vector<std::int64_t>& numbers) {
  NSMutableArray<NSNumber*>* result = [NSMutableArray arrayWithCapacity:numbers.size()];
  for (const std::int64_t number : numbers) {
    [result addObject:[NSNumber numberWithLongLong:number]];
  }
  return result;
}

std::string describe(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers) {
    text += (text.empty() ? "" : " x ") + std::to_string(number);
  }
  return "(" + text + ")";
}

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * shape[i];
  }
  return strides;
}

std::vector<std::int64_t> padded_strides(const std::vector<std::int64_t>& shape, std::size_t element_bytes) {
  const Options now = options();
  if (!now.pad_framework_outputs || shape.size() < 2) {
    return dense_strides(shape);
  }
  const std::size_t tight = static_cast<std::size_t>(shape.back()) * element_bytes;
  // A row must hold whole elements; alignments and padding that do not are rounded up to the next element.
  const std::size_t padded = (tight + now.row_alignment - 1) / now.row_alignment * now.row_alignment + now.row_padding;
  std::vector<std::int64_t> strides(shape.size(), 1);
  strides[shape.size() - 2] = static_cast<std::int64_t>((padded + element_bytes - 1) / element_bytes);
  for (std::size_t i = shape.size() - 2; i > 0; --i) {
    strides[i - 1] = strides[i] * shape[i];
  }
  return strides;
}

std::size_t span_byte_count(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                            std::size_t element_bytes) noexcept {
  std::size_t last = 0;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 0) {
      return 0;
    }
    last += static_cast<std::size_t>(shape[i] - 1) * static_cast<std::size_t>(strides[i]);
  }
  return (last + 1) * element_bytes;
}

MLMultiArray* make_array(const std::vector<std::int64_t>& shape, MLMultiArrayDataType type,
                         const std::vector<std::int64_t>& strides) {
  const std::size_t payload = span_byte_count(shape, strides, element_byte_width(type));
  void* base = nullptr;
  if (allocation_must_fail("array") || posix_memalign(&base, kGuardByteCount, payload + 2 * kGuardByteCount) != 0) {
    return nil;
  }
  if (options().poison) {
    std::memset(base, 0xFF, payload + 2 * kGuardByteCount);
  }
  MLMultiArray* array = [[MLMultiArray alloc] initWithDataPointer:static_cast<std::byte*>(base) + kGuardByteCount
                                                            shape:to_array(shape)
                                                         dataType:type
                                                          strides:to_array(strides) deallocator:^(void* bytes) {
                                                            std::free(static_cast<std::byte*>(bytes) - kGuardByteCount);
                                                          }
                                                            error:nullptr];
  if (array == nil) {
    std::free(base);
  }
  return [array autorelease];
}

MLMultiArray* make_surface_array(const std::vector<std::int64_t>& shape, MLMultiArrayDataType type) {
  const OSType format = type == MLMultiArrayDataTypeFloat16 ? kCVPixelFormatType_OneComponent16Half
                        : type == MLMultiArrayDataTypeInt8  ? kCVPixelFormatType_OneComponent8
                                                            : OSType{0};
  if (format == 0 || shape.empty()) {
    return nil;
  }
  const auto rows =
      std::accumulate(shape.begin(), shape.end() - 1, std::int64_t{1}, [](auto a, auto b) { return a * b; });
  NSDictionary* attributes =
      @{reinterpret_cast<NSString*>(const_cast<__CFString*>(kCVPixelBufferIOSurfacePropertiesKey)) : @{}};
  CVPixelBufferRef buffer = nullptr;
  if (CVPixelBufferCreate(nullptr, static_cast<size_t>(shape.back()), static_cast<size_t>(rows), format,
                          reinterpret_cast<CFDictionaryRef>(attributes), &buffer) != kCVReturnSuccess) {
    return nil;
  }
  MLMultiArray* array = [[[MLMultiArray alloc] initWithPixelBuffer:buffer shape:to_array(shape)] autorelease];
  CVPixelBufferRelease(buffer);
  return array;
}

MLMultiArray* make_alias(MLMultiArray* array) {
  MLMultiArrayStorage* storage = array->_storage;
  if (storage->memory.buffer != nullptr) {
    return [[[MLMultiArray alloc] initWithPixelBuffer:storage->memory.buffer
                                                shape:storage->shape_object.get()] autorelease];
  }
  MLMultiArray* alias = [[[MLMultiArray alloc] initWithDataPointer:storage->memory.bytes
                                                             shape:storage->shape_object.get()
                                                          dataType:storage->dtype
                                                           strides:storage->strides_object.get()
                                                       deallocator:nullptr
                                                             error:nullptr] autorelease];
  alias->_storage->memory.keeper = Strong<id>(array);
  return alias;
}

mil::TensorView view_of(MLMultiArray* array) {
  MLMultiArrayStorage* storage = array->_storage;
  if (storage->memory.bytes == nullptr) {
    raise_invalid_argument("the array's memory has gone");
  }
  return {*engine_type(storage->dtype), storage->shape, storage->strides, storage->memory.bytes};
}

namespace {

void release_memory(MLMultiArrayStorage& storage) {
  ArrayMemory memory = std::exchange(storage.memory, {});
  if (memory.buffer != nullptr) {
    if (std::exchange(storage.sticky_lock, false)) {
      CVPixelBufferUnlockBaseAddress(memory.buffer, 0);
    }
    CVPixelBufferRelease(memory.buffer);
  }
  if (memory.deallocator != nullptr) {
    auto deallocator = memory.deallocator;
    void* bytes = memory.bytes;
    post_release([deallocator, bytes] {
      deallocator(bytes);
      Block_release(deallocator);
    });
  }
}

}  // namespace

void replace_memory(MLMultiArray* array, ArrayMemory memory, const std::vector<std::int64_t>& strides) {
  MLMultiArrayStorage& storage = *array->_storage;
  release_memory(storage);
  storage.memory = std::move(memory);
  storage.strides = strides;
  storage.strides_object = to_array(strides);
  if (storage.memory.buffer != nullptr) {
    storage.generation_at_creation = pixel_buffer(storage.memory.buffer).lock_generation();
  }
}

void set_layout(MLMultiArray* array, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                MLMultiArrayDataType type) {
  MLMultiArrayStorage& storage = *array->_storage;
  storage.shape = shape;
  storage.strides = strides;
  storage.dtype = type;
  storage.shape_object = to_array(shape);
  storage.strides_object = to_array(strides);
}

void invalidate(MLMultiArray* array) { release_memory(*array->_storage); }

}  // namespace coremlsim
