// MLMultiArray over memory we own, and reading any array without touching dataPointer or a subscript (those keep a
// pixel-buffer array locked until it dies).
// Threads: any; call inside guarded(). Ownership: a wrapper holds its `owner` until the framework lets go of the
// wrapper, on whatever thread; its deallocator block captures that one shared_ptr and nothing else.
#pragma once

#import <CoreML/CoreML.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coreml/retain_ptr.h"
#include "kvbacking/layout.h"

namespace kvbacking {

MLMultiArrayDataType array_data_type(DType dtype) noexcept;
std::optional<DType> dtype_of(MLMultiArrayDataType type) noexcept;
std::string data_type_name(MLMultiArrayDataType type);  // NumPy's name, or "type 65600" for one that is not ours
// False where the framework does not know Int8 arrays (before macOS 26); asks by making one.
bool supports_int8_arrays();

RetainPtr<NSArray<NSNumber*>*> number_array(const std::vector<std::int64_t>& values);
std::vector<std::int64_t> integers(NSArray<NSNumber*>* values);

// The two NSArrays that describe a layout, made once and used for every wrapper over it.
struct ArrayGeometry {
  RetainPtr<NSArray<NSNumber*>*> shape, strides;
  explicit ArrayGeometry(const Layout& layout);
  ArrayGeometry() = default;
};

// Wraps, never copies. `owner` dies after the wrapper's deallocator ran. Throws Error(kAllocation) with the NSError.
RetainPtr<MLMultiArray*> wrap_memory(void* data, DType dtype, const ArrayGeometry& geometry,
                                     std::shared_ptr<void> owner);
RetainPtr<MLMultiArray*> wrap_pixel_buffer(CVPixelBufferRef pixel_buffer, NSArray<NSNumber*>* shape);

// What an array says about itself; reads no bytes.
struct ArrayDescription {
  std::vector<std::int64_t> shape, element_strides;
  std::optional<DType> dtype;
  std::string dtype_name;
  // Empty when it is no layout of ours: unknown dtype, wrong rank of strides, negative or overlapping strides.
  std::optional<Layout> layout() const;
};
ArrayDescription describe(MLMultiArray* array);

// Equal where they matter: the stride of a dimension of one element addresses nothing.
bool same_strides(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& left,
                  const std::vector<std::int64_t>& right) noexcept;

// Calls `reader` with the array's first byte and the readable byte count; the pointer is valid inside only. A
// pixel-buffer array is read under a read-only lock of its pixel buffer, any other by its byte handler. What `reader`
// throws does not cross the framework.
using ByteReader = std::function<void(const void* bytes, std::size_t byte_count)>;
void read_bytes(MLMultiArray* array, const ByteReader& reader);
// The same for writing (a state's view). The layout is the one that the handler gives.
using ByteWriter = std::function<void(void* bytes, std::size_t byte_count, const std::vector<std::int64_t>& strides)>;
void write_bytes(MLMultiArray* array, const ByteWriter& writer);

}  // namespace kvbacking
