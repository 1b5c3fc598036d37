// A value type for what lies where: element type, shape, strides in elements. Owns no memory.
// Threads: immutable after construction; safe everywhere.
// Ownership: none. Every count is overflow-checked and throws Error(kInvalidArgument).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvbacking {

enum class DType : std::uint8_t { kFloat16, kFloat32, kFloat64, kInt32, kInt8 };

std::size_t element_size(DType dtype) noexcept;  // bytes
const char* dtype_name(DType dtype) noexcept;    // NumPy's name: "float16", ...
DType dtype_from_name(const std::string& name);  // throws Error(kInvalidArgument)

struct Layout {
  DType dtype = DType::kFloat16;
  std::vector<std::int64_t> shape;  // every dimension >= 0; rank 0 is a scalar
  std::vector<std::int64_t>
      element_strides;  // in elements, as MLMultiArray counts them; may be negative only for inputs

  // C-contiguous.
  static Layout dense(DType dtype, std::vector<std::int64_t> shape);
  // Rows (the last dimension) dense, successive rows `row_element_stride` elements apart: a pixel buffer's layout.
  static Layout padded_rows(DType dtype, std::vector<std::int64_t> shape, std::int64_t row_element_stride);
  // Checks rank, sign and overflow.
  static Layout strided(DType dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides);

  std::int64_t element_count() const;  // product of the shape
  std::size_t byte_count() const;      // logical bytes, padding not counted
  std::size_t span_byte_count()
      const;                        // bytes from the first to one past the last element (strides must not be negative)
  std::int64_t row_length() const;  // elements of the last dimension, 1 for a scalar
  std::int64_t row_count() const;   // product of the other dimensions
  bool is_dense() const;            // C-contiguous
  bool is_row_padded() const;       // last dimension dense, rows a constant stride apart (dense counts)
  bool overlaps_itself() const;     // two indices may share an element (conservative: true when not provably distinct)
  std::string describe() const;     // "float16[4,1536,1280] strides [..]"

  bool operator==(const Layout&) const = default;
};

}  // namespace kvbacking
