// Where a layout's elements lie relative to its first one, and in which runs they can be walked. Core-internal.
// Threads: pure functions. Ownership: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking {

// Rank agreement, signs and overflow of an aggregate that may not have come from a Layout factory.
void validate_layout(const Layout& layout);

// Bytes relative to element [0, ..., 0]: [begin, end). Negative strides reach below zero. begin == end when empty.
struct ByteExtent {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
ByteExtent byte_extent(const Layout& layout);

// Distance between successive rows when it is one constant and rows are dense and do not overlap; dense layouts and
// single rows count (row_length then). Empty otherwise.
std::optional<std::int64_t> row_element_stride(const Layout& layout);

}  // namespace kvbacking
