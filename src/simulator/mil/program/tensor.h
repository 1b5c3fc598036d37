// What the planner and the ops know of a value.
// Threads: values; a plan's are immutable once it is made.
// Ownership: `data` and `literal` point into the package, the constant pool or the plan.
#pragma once

#include <cstdint>
#include <vector>

#include "mil/package/ast.h"
#include "mil/package/types.h"

namespace coremlsim::mil {

// How elements lie in memory while a program runs: all floating point types as float, all integers as int32. kHalf
// occurs only for constants that an op can use as they lie in the weight file, kString only for literals.
enum class Storage : std::uint8_t { kFloat, kInt, kBool, kHalf, kString };

inline Storage storage_of(MilType type) noexcept {
  if (is_float(type)) return Storage::kFloat;
  if (type == MilType::kBool) return Storage::kBool;
  return type == MilType::kString ? Storage::kString : Storage::kInt;
}

inline std::int64_t storage_bytes(Storage storage) noexcept {
  switch (storage) {
    case Storage::kFloat:
    case Storage::kInt:
      return 4;
    case Storage::kHalf:
      return 2;
    case Storage::kBool:
      return 1;
    case Storage::kString:
      return 0;
  }
  return 0;
}

using Slot = int;  // index of a pointer in a Frame
constexpr Slot kNoSlot = -1;

struct Info {
  Slot slot = kNoSlot;
  MilType dtype = MilType::kNone;
  Storage storage = Storage::kFloat;
  Shape shape;
  std::int64_t count = 0;
  const void* data = nullptr;      // the elements, when they are known while planning; Call::in_known() asks for them
  const Value* literal = nullptr;  // of a constant

  std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
  std::int64_t bytes() const { return count * storage_bytes(storage); }
};

}  // namespace coremlsim::mil
