#include "kvbacking/layout.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/checked_math.h"
#include "core/extent.h"
#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::array kDTypes = {
    std::pair{DType::kFloat16, "float16"}, std::pair{DType::kFloat32, "float32"}, std::pair{DType::kFloat64, "float64"},
    std::pair{DType::kInt32, "int32"},     std::pair{DType::kInt8, "int8"},
};

std::string join(const std::vector<std::int64_t>& values) {
  std::string text = "[";
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i != 0) text += ',';
    text += std::to_string(values[i]);
  }
  return text + "]";
}

bool is_empty(const Layout& layout) { return std::ranges::find(layout.shape, 0) != layout.shape.end(); }

std::vector<std::int64_t> dense_strides(const std::vector<std::int64_t>& shape, std::size_t rank,
                                        std::int64_t row_stride) {
  std::vector<std::int64_t> strides(rank, 1);
  if (rank >= 2) strides[rank - 2] = row_stride;
  for (std::size_t i = rank; i-- > 2;) {
    // An empty dimension must not turn the strides outside it into zero: NumPy counts it as one here too.
    strides[i - 2] = checked_multiply(strides[i - 1], std::max<std::int64_t>(shape[i - 1], 1), "stride");
  }
  return strides;
}

void require_shape(const std::vector<std::int64_t>& shape) {
  for (const std::int64_t size : shape) {
    if (size < 0) {
      throw Error(ErrorCode::kInvalidArgument, "[layout] negative dimension in shape " + join(shape));
    }
  }
}

}  // namespace

std::size_t element_size(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat16:
      return 2;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kFloat64:
      return 8;
    case DType::kInt8:
      return 1;
  }
  return 0;
}

const char* dtype_name(DType dtype) noexcept {
  const auto* row = std::ranges::find(kDTypes, dtype, &std::pair<DType, const char*>::first);
  return row == kDTypes.end() ? "unknown" : row->second;
}

DType dtype_from_name(const std::string& name) {
  for (const auto& [dtype, known] : kDTypes) {
    if (name == known) return dtype;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "[layout] unknown dtype '" + name + "': expected float16, float32, float64, int32 or int8");
}

Layout Layout::dense(DType dtype, std::vector<std::int64_t> shape) {
  const std::int64_t row_length = shape.empty() ? 1 : std::max<std::int64_t>(shape.back(), 1);
  return padded_rows(dtype, std::move(shape), row_length);
}

Layout Layout::padded_rows(DType dtype, std::vector<std::int64_t> shape, std::int64_t row_element_stride) {
  require_shape(shape);
  if (row_element_stride < (shape.empty() ? 1 : shape.back())) {
    throw Error(ErrorCode::kInvalidArgument, "[layout] row stride of " + std::to_string(row_element_stride) +
                                                 " elements is shorter than the rows of shape " + join(shape));
  }
  std::vector<std::int64_t> strides = dense_strides(shape, shape.size(), row_element_stride);
  return strided(dtype, std::move(shape), std::move(strides));
}

Layout Layout::strided(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides) {
  Layout layout{dtype, std::move(shape), std::move(element_strides)};
  validate_layout(layout);
  return layout;
}

std::int64_t Layout::element_count() const {
  if (is_empty(*this)) return 0;
  std::int64_t count = 1;
  for (const std::int64_t size : shape) count = checked_multiply(count, size, "element count");
  return count;
}

std::size_t Layout::byte_count() const {
  return static_cast<std::size_t>(
      checked_multiply(element_count(), static_cast<std::int64_t>(element_size(dtype)), "byte count"));
}

std::size_t Layout::span_byte_count() const {
  const ByteExtent extent = byte_extent(*this);
  if (extent.begin < 0) {
    throw Error(ErrorCode::kInvalidArgument, "[layout] negative strides have no span: " + describe());
  }
  return static_cast<std::size_t>(extent.end);
}

std::int64_t Layout::row_length() const { return shape.empty() ? 1 : shape.back(); }

std::int64_t Layout::row_count() const {
  std::int64_t count = 1;
  if (shape.empty()) return count;
  if (std::find(shape.begin(), shape.end() - 1, 0) != shape.end() - 1) return 0;
  for (std::size_t i = 0; i + 1 < shape.size(); ++i) count = checked_multiply(count, shape[i], "row count");
  return count;
}

bool Layout::is_dense() const {
  if (is_empty(*this)) return true;
  std::int64_t expected = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 1) continue;  // the stride of a dimension of one is never used
    if (element_strides[i] != expected) return false;
    expected = checked_multiply(expected, shape[i], "stride");
  }
  return true;
}

bool Layout::is_row_padded() const { return row_element_stride(*this).has_value(); }

bool Layout::overlaps_itself() const {
  if (is_empty(*this)) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> steps;  // stride, size
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == 1) continue;
    if (element_strides[i] == INT64_MIN) return true;
    steps.emplace_back(std::abs(element_strides[i]), shape[i]);
  }
  std::ranges::sort(steps);
  // Distinct when every stride, in ascending order, clears what all smaller ones can reach together.
  std::int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return true;
    reach = checked_add(reach, checked_multiply(stride, size - 1, "extent"), "extent");
  }
  return false;
}

std::string Layout::describe() const {
  return std::string(dtype_name(dtype)) + join(shape) + " strides " + join(element_strides);
}

void validate_layout(const Layout& layout) {
  if (layout.shape.size() != layout.element_strides.size()) {
    throw Error(ErrorCode::kInvalidArgument, "[layout] shape " + join(layout.shape) + " and strides " +
                                                 join(layout.element_strides) + " differ in rank");
  }
  if (element_size(layout.dtype) == 0) throw Error(ErrorCode::kInvalidArgument, "[layout] unknown dtype");
  require_shape(layout.shape);
  (void)layout.byte_count();
  (void)byte_extent(layout);
}

ByteExtent byte_extent(const Layout& layout) {
  if (is_empty(layout)) return {};
  const auto size = static_cast<std::int64_t>(element_size(layout.dtype));
  ByteExtent extent{0, size};
  for (std::size_t i = 0; i < layout.shape.size(); ++i) {
    const std::int64_t reach =
        checked_multiply(checked_multiply(layout.element_strides[i], layout.shape[i] - 1, "extent"), size, "extent");
    std::int64_t& side = reach < 0 ? extent.begin : extent.end;
    side = checked_add(side, reach, "extent");
  }
  return extent;
}

std::optional<std::int64_t> row_element_stride(const Layout& layout) {
  const std::int64_t row_length = layout.row_length();
  if (is_empty(layout)) return row_length;
  const std::size_t rank = layout.shape.size();
  if (rank == 0) return row_length;
  if (row_length != 1 && layout.element_strides[rank - 1] != 1) return std::nullopt;
  std::optional<std::int64_t> row_stride;
  std::int64_t rows_inside = 1;
  for (std::size_t i = rank - 1; i-- > 0;) {
    if (layout.shape[i] == 1) continue;
    if (!row_stride) row_stride = layout.element_strides[i];
    if (layout.element_strides[i] != checked_multiply(*row_stride, rows_inside, "stride")) return std::nullopt;
    rows_inside = checked_multiply(rows_inside, layout.shape[i], "row count");
  }
  if (!row_stride) return row_length;
  if (*row_stride < row_length) return std::nullopt;
  return row_stride;
}

}  // namespace kvbacking
