#include "core/sentinel.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace kvbacking {
namespace {

// Calls visit(row index, element offset of the row's first element, index of the outer dimensions) for every row.
template <class Visit>
void for_each_row(const Layout& layout, Visit&& visit) {
  if (layout.element_count() == 0) return;
  const std::size_t outer = layout.shape.empty() ? 0 : layout.shape.size() - 1;
  std::vector<std::int64_t> index(outer, 0);
  std::int64_t offset = 0;
  for (std::int64_t row = 0;; ++row) {
    if (!visit(row, offset, index)) return;
    std::size_t dimension = outer;
    for (;;) {
      if (dimension == 0) return;
      --dimension;
      offset += layout.element_strides[dimension];
      if (++index[dimension] < layout.shape[dimension]) break;
      offset -= index[dimension] * layout.element_strides[dimension];
      index[dimension] = 0;
    }
  }
}

std::int64_t last_element_offset(const Layout& layout, std::int64_t length) {
  return layout.shape.empty() ? 0 : (length - 1) * layout.element_strides.back();
}

bool rows_are_dense(const Layout& layout) {
  return layout.shape.empty() || layout.shape.back() <= 1 || layout.element_strides.back() == 1;
}

}  // namespace

bool has_sentinel(DType dtype) noexcept {
  return dtype == DType::kFloat16 || dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

std::uint64_t sentinel_pattern(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return 0x7e5b;
    case DType::kFloat32:
      return 0x7fc5'b6a7;
    default:
      return 0x7ff8'5b6a'7c8d'9eaf;
  }
}

void write_row_sentinels(void* data, const Layout& layout) {
  const std::size_t size = element_size(layout.dtype);
  const std::uint64_t pattern = sentinel_pattern(layout.dtype);
  auto* const base = static_cast<std::byte*>(data);
  const std::int64_t last = last_element_offset(layout, layout.row_length());
  for_each_row(layout, [&](std::int64_t, std::int64_t offset, const auto&) {
    std::memcpy(base + offset * static_cast<std::int64_t>(size), &pattern, size);
    std::memcpy(base + (offset + last) * static_cast<std::int64_t>(size), &pattern, size);
    return true;
  });
}

std::optional<std::int64_t> first_unwritten_row(const void* data, const Layout& layout, std::int64_t live,
                                                std::int64_t axis) {
  const std::size_t size = element_size(layout.dtype);
  const std::uint64_t pattern = sentinel_pattern(layout.dtype);
  const auto* const base = static_cast<const std::byte*>(data);
  const bool axis_is_row = axis + 1 == static_cast<std::int64_t>(layout.shape.size());
  if (live == 0) return std::nullopt;
  const bool last_is_live = !axis_is_row || live >= layout.row_length();
  const std::int64_t last = last_element_offset(layout, layout.row_length());
  const auto holds = [&](std::int64_t offset) {
    return std::memcmp(base + offset * static_cast<std::int64_t>(size), &pattern, size) == 0;
  };
  std::optional<std::int64_t> unwritten;
  for_each_row(layout, [&](std::int64_t row, std::int64_t offset, const auto& index) {
    if (!axis_is_row && !index.empty() && index[static_cast<std::size_t>(axis)] >= live) return true;
    if (!holds(offset) && !(last_is_live && holds(offset + last))) return true;
    unwritten = row;
    return false;
  });
  return unwritten;
}

void fill_elements(void* data, const Layout& layout, std::uint8_t byte) {
  const std::size_t size = element_size(layout.dtype);
  const std::int64_t length = layout.row_length();
  auto* const base = static_cast<std::byte*>(data);
  const bool dense = rows_are_dense(layout);
  for_each_row(layout, [&](std::int64_t, std::int64_t offset, const auto&) {
    std::byte* row = base + offset * static_cast<std::int64_t>(size);
    if (dense) {
      std::memset(row, byte, static_cast<std::size_t>(length) * size);
    } else {
      for (std::int64_t i = 0; i < length; ++i) {
        std::memset(row + i * layout.element_strides.back() * static_cast<std::int64_t>(size), byte, size);
      }
    }
    return true;
  });
}

void fill_row_gaps(void* data, const Layout& layout, std::size_t row_byte_stride, std::uint8_t byte) {
  const std::size_t used = static_cast<std::size_t>(layout.row_length()) * element_size(layout.dtype);
  auto* row = static_cast<std::byte*>(data);
  for (std::int64_t i = 0; i < layout.row_count(); ++i, row += row_byte_stride) {
    std::memset(row + used, byte, row_byte_stride - used);
  }
}

bool row_gaps_hold(const void* data, const Layout& layout, std::size_t row_byte_stride, std::uint8_t byte) {
  const std::size_t used = static_cast<std::size_t>(layout.row_length()) * element_size(layout.dtype);
  const auto* row = static_cast<const std::byte*>(data);
  for (std::int64_t i = 0; i < layout.row_count(); ++i, row += row_byte_stride) {
    const bool held = std::all_of(row + used, row + row_byte_stride, [&](std::byte b) { return b == std::byte{byte}; });
    if (!held) return false;
  }
  return true;
}

bool equal_elements(const void* left, const Layout& left_layout, const void* right, const Layout& right_layout) {
  if (left_layout.dtype != right_layout.dtype || left_layout.shape != right_layout.shape) return false;
  const auto size = static_cast<std::int64_t>(element_size(left_layout.dtype));
  const std::int64_t length = left_layout.row_length();
  const auto* const a = static_cast<const std::byte*>(left);
  const auto* const b = static_cast<const std::byte*>(right);
  const bool dense = rows_are_dense(left_layout) && rows_are_dense(right_layout);
  std::vector<std::int64_t> right_offsets;
  right_offsets.reserve(static_cast<std::size_t>(right_layout.row_count()));
  for_each_row(right_layout, [&](std::int64_t, std::int64_t offset, const auto&) {
    right_offsets.push_back(offset);
    return true;
  });
  bool equal = true;
  for_each_row(left_layout, [&](std::int64_t row, std::int64_t offset, const auto&) {
    const std::byte* left_row = a + offset * size;
    const std::byte* right_row = b + right_offsets[static_cast<std::size_t>(row)] * size;
    if (dense) {
      equal = std::memcmp(left_row, right_row, static_cast<std::size_t>(length * size)) == 0;
    } else {
      for (std::int64_t i = 0; i < length && equal; ++i) {
        equal = std::memcmp(left_row + i * left_layout.element_strides.back() * size,
                            right_row + i * right_layout.element_strides.back() * size,
                            static_cast<std::size_t>(size)) == 0;
      }
    }
    return equal;
  });
  return equal;
}

}  // namespace kvbacking
