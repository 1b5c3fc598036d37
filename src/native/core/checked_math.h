// Integer arithmetic that throws instead of wrapping. Counts are signed 64-bit, as MLMultiArray's are.
// Threads: pure functions. Ownership: none.
#pragma once

#include <cstdint>
#include <string>

#include "kvbacking/error.h"

namespace kvbacking {

inline std::int64_t checked_multiply(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) {
    throw Error(ErrorCode::kInvalidArgument, std::string("[layout] ") + what + " does not fit 64 bits: " +
                                                 std::to_string(a) + " * " + std::to_string(b));
  }
  return result;
}

inline std::int64_t checked_add(std::int64_t a, std::int64_t b, const char* what) {
  std::int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) {
    throw Error(ErrorCode::kInvalidArgument, std::string("[layout] ") + what + " does not fit 64 bits: " +
                                                 std::to_string(a) + " + " + std::to_string(b));
  }
  return result;
}

}  // namespace kvbacking
