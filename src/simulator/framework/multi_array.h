// What the framework's own code needs to know about an MLMultiArray that its public interface hides.
// Threads: as MLMultiArray: one at a time, except that the last release may come from any thread.
// Ownership: ArrayMemory describes memory that the array owns; replacing it releases the old on the release thread.
#pragma once

#import <CoreML/CoreML.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "framework/strong.h"
#include "mil/engine.h"

namespace coremlsim {

std::optional<mil::DataType> engine_type(MLMultiArrayDataType type) noexcept;
std::optional<MLMultiArrayDataType> array_type(mil::DataType type) noexcept;
std::size_t element_byte_width(MLMultiArrayDataType type) noexcept;
const char* type_name(MLMultiArrayDataType type) noexcept;
std::vector<std::int64_t> to_vector(NSArray<NSNumber*>* numbers);
NSArray<NSNumber*>* to_array(const std::vector<std::int64_t>& numbers);
std::string describe(const std::vector<std::int64_t>& numbers);
std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape);
// Rows (last dimension) rounded up and padded as the options say.
std::vector<std::int64_t> padded_strides(const std::vector<std::int64_t>& shape, std::size_t element_bytes);
// From the first to behind the last element.
std::size_t span_byte_count(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                            std::size_t element_bytes) noexcept;

struct ArrayMemory {
  void* bytes = nullptr;
  std::size_t byte_count = 0;
  void (^deallocator)(void*) = nullptr;  // owned copy
  CVPixelBufferRef buffer = nullptr;     // owned reference
  Strong<id> keeper;                     // any other object that owns the bytes
};

}  // namespace coremlsim

struct MLMultiArrayStorage {
  coremlsim::ArrayMemory memory;
  std::vector<std::int64_t> shape, strides;
  MLMultiArrayDataType dtype = MLMultiArrayDataTypeFloat32;
  bool sticky_lock = false;                  // dataPointer or a subscript was used on a pixel buffer
  std::uint64_t generation_at_creation = 0;  // of the pixel buffer's CPU locks
  coremlsim::Strong<NSArray<NSNumber*>*> shape_object, strides_object;
  std::atomic<int> releases{0};  // orders every owner's last use before deallocation, visibly to race detectors
};

namespace coremlsim {

// Framework-allocated memory with guard bytes on both sides (faults write there), poisoned. +0.
MLMultiArray* make_array(const std::vector<std::int64_t>& shape, MLMultiArrayDataType type,
                         const std::vector<std::int64_t>& strides);
// The same over a new pixel buffer; nil when the shape does not fit one.
MLMultiArray* make_surface_array(const std::vector<std::int64_t>& shape, MLMultiArrayDataType type);
// Another array object over the same bytes; keeps `array` alive.
MLMultiArray* make_alias(MLMultiArray* array);

// The device's view of the array: no lock is taken or counted.
mil::TensorView view_of(MLMultiArray* array);
void replace_memory(MLMultiArray* array, ArrayMemory memory, const std::vector<std::int64_t>& strides);
void set_layout(MLMultiArray* array, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                MLMultiArrayDataType type);
// Takes the memory away, so that later use raises (state views after their block).
void invalidate(MLMultiArray* array);

}  // namespace coremlsim
