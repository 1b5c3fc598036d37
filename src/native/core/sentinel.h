// What is written into a backing before a prediction so that bytes nobody wrote show up afterwards: a quiet NaN with a
// payload of ours at both ends of every row, a fill of the whole payload, a pattern in the gaps of padded rows.
// Threads: pure functions on memory that the caller holds alone. Ownership: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "kvbacking/layout.h"

namespace kvbacking {

bool has_sentinel(DType dtype) noexcept;               // float types
std::uint64_t sentinel_pattern(DType dtype) noexcept;  // its bytes, in the low element_size() bytes

// Every row's first and last element.
void write_row_sentinels(void* data, const Layout& layout);

// A row whose first or last element within the live range still holds the sentinel: its index in C order.
std::optional<std::int64_t> first_unwritten_row(const void* data, const Layout& layout, std::int64_t live,
                                                std::int64_t axis);

void fill_elements(void* data, const Layout& layout, std::uint8_t byte);

// The bytes between rows of a row-padded layout whose rows are `row_byte_stride` apart (the last row's gap included).
void fill_row_gaps(void* data, const Layout& layout, std::size_t row_byte_stride, std::uint8_t byte);
bool row_gaps_hold(const void* data, const Layout& layout, std::size_t row_byte_stride, std::uint8_t byte);

// Every logical element has equal bytes; shapes and dtypes must be equal.
bool equal_elements(const void* left, const Layout& left_layout, const void* right, const Layout& right_layout);

}  // namespace kvbacking
