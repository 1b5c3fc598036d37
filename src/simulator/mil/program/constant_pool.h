// Constants of a program in the form its ops want: as they lie in the weight file, or decoded once.
// Threads: safe everywhere; decoding happens under a lock.
// Ownership: owns what it decoded; everything else points into the Package.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "mil/package/ast.h"
#include "mil/program/aligned_buffer.h"
#include "mil/program/tensor.h"

namespace coremlsim::mil {

class ConstantPool {
 public:
  const void* decoded(const Value& value);  // float, int32 or bool elements
  // What decoded() gives when the elements are used as they lie in the file; null when there is work to do.
  static const void* as_is(const Value& value) noexcept;
  const void* half(const Value& value);  // fp16 elements; the literal must be fp16
  // The literal that a constexpr op stands for, computed once for all plans.
  const Value& computed(const Operation& op, std::size_t output, const std::function<Value()>& compute);
  std::int64_t byte_count() const;  // of what was decoded or computed; what lies in the weight file costs nothing

 private:
  mutable std::mutex mutex_;
  std::int64_t byte_count_ = 0;
  std::map<const Value*, AlignedBuffer> decoded_, halves_;
  std::map<std::pair<const Operation*, std::size_t>, std::unique_ptr<Value>> computed_;
};

// Decodes `count` elements of any MIL type (packed below 8 bits) to float.
void decode_to_float(MilType type, const std::uint8_t* raw, std::int64_t first, std::int64_t count, float* out);
std::int64_t decode_integer(MilType type, const std::uint8_t* raw, std::int64_t index);

}  // namespace coremlsim::mil
