// What is known about one output, and about one input, of one prediction (OutputEvidence, InputEvidence in Python).
// Plain values.
// A field that was not evaluated is empty, never true. Threads: a value. Ownership: owns its strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kvbacking {

struct OutputEvidence {
  std::string name;
  std::string mechanism;         // "framework" | "raw" | "surface" | "pool" | "external"
  bool proposed = false;         // was in outputBackings for this prediction
  std::optional<bool> allowed;   // isAllowedValue: returned YES
  std::optional<bool> accepted;  // same_object and same_storage; empty when nothing was proposed
  std::optional<bool> same_object;
  std::optional<bool> same_storage;
  std::optional<bool> in_range;
  std::vector<std::int64_t> shape;    // of what was returned
  std::vector<std::int64_t> strides;  // in elements, of what was returned
  std::string dtype;                  // of what was returned
  std::optional<bool> layout_ok;
  std::string direct_write = "unknown";  // nothing public tells
  std::size_t bytes_copied = 0;
  std::optional<std::string> digest;  // XXH3-128 hex of all logical bytes
  std::optional<bool> finite;
  std::optional<bool> non_zero;
  std::optional<double> min, max;
  std::optional<bool> tail_zero;
  std::optional<bool> canaries_intact;
  std::optional<bool> row_gaps_touched;  // informs, never fails
  std::optional<bool> complete;
  std::optional<bool> fresh;
  std::optional<bool> distinct;
  std::vector<std::string> checked;  // the checks that were evaluated, in order
};

// How an input reached the framework. Addresses are numbers to compare, not to read.
struct InputEvidence {
  std::string name;
  std::string path;                            // "copied" | "memory" (lent) | "surface"
  std::uint64_t source_address = 0;            // of the caller's first byte; 0: a surface
  std::optional<std::uint64_t> array_address;  // what the framework's array said after the prediction; empty: a surface
  std::uint32_t surface_id = 0;                // 0: not a surface
  std::optional<bool> same_storage;            // after the prediction, the array still lies in what was lent
  std::optional<bool> unchanged;               // the lent bytes had the same digest before and after
  std::size_t bytes_copied = 0;
  std::string reason;  // why it was copied although it might have been lent
};

}  // namespace kvbacking
