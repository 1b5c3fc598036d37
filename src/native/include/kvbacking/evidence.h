// What is known about one output of one prediction (OutputEvidence in Python). A plain value.
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

}  // namespace kvbacking
