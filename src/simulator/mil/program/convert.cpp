// convert(): any element type and strides into any other. Rows that are dense on both sides go through the kernels.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "mil/kernels/kernels.h"
#include "mil/package/types.h"

namespace coremlsim::mil {
namespace {

template <class To, class From>
To convert_element(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_integral_v<To>) {
    if constexpr (std::is_same_v<From, bool>) {
      return static_cast<To>(value ? 1 : 0);
    } else if constexpr (std::is_integral_v<From>) {
      if (std::cmp_less(value, std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
      if (std::cmp_greater(value, std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
      return static_cast<To>(value);
    } else {
      const double rounded = std::nearbyint(static_cast<double>(value));
      if (std::isnan(rounded)) return 0;
      // The limits as doubles may round up out of range, hence >=.
      if (rounded <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
      if (rounded >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
      return static_cast<To>(rounded);
    }
  } else {
    return static_cast<To>(value);
  }
}

using RowFunction = void (*)(const void* in, std::int64_t in_stride, void* out, std::int64_t out_stride,
                             std::int64_t n);

// A bool in memory is any byte; reading it as bool would be undefined for values above 1.
template <class T>
struct Load {
  static T at(const void* p, std::int64_t i) { return static_cast<const T*>(p)[i]; }
};
template <>
struct Load<bool> {
  static bool at(const void* p, std::int64_t i) { return static_cast<const std::uint8_t*>(p)[i] != 0; }
};

template <class From, class To>
void convert_row(const void* in, std::int64_t in_stride, void* out, std::int64_t out_stride, std::int64_t n) {
  if (in_stride == 1 && out_stride == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(out, in, static_cast<std::size_t>(n) * sizeof(To));
      return;
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, _Float16>) {
      kernels().f32_to_f16(static_cast<const float*>(in), static_cast<std::uint16_t*>(out), n);
      return;
    } else if constexpr (std::is_same_v<From, _Float16> && std::is_same_v<To, float>) {
      kernels().f16_to_f32(static_cast<const std::uint16_t*>(in), static_cast<float*>(out), n);
      return;
    }
  }
  for (std::int64_t i = 0; i < n; ++i) {
    static_cast<To*>(out)[i * out_stride] = convert_element<To, From>(Load<From>::at(in, i * in_stride));
  }
}

template <class Visit>
auto with_type(DataType type, Visit visit) {
  switch (type) {
    case DataType::kBool:
      return visit(bool{});
    case DataType::kFloat16:
      return visit(static_cast<_Float16>(0));
    case DataType::kFloat32:
      return visit(float{});
    case DataType::kFloat64:
      return visit(double{});
    case DataType::kInt8:
      return visit(std::int8_t{});
    case DataType::kUInt8:
      return visit(std::uint8_t{});
    case DataType::kInt16:
      return visit(std::int16_t{});
    case DataType::kUInt16:
      return visit(std::uint16_t{});
    case DataType::kInt32:
      return visit(std::int32_t{});
    case DataType::kUInt32:
      return visit(std::uint32_t{});
    case DataType::kInt64:
      return visit(std::int64_t{});
    case DataType::kUInt64:
      return visit(std::uint64_t{});
    case DataType::kString:
    case DataType::kOther:
      break;
  }
  throw ModelError("[mil::convert] strings and unknown element types cannot be converted");
}

RowFunction row_function(DataType from, DataType to) {
  return with_type(from, [to](auto source) {
    return with_type(to, [](auto target) -> RowFunction { return convert_row<decltype(source), decltype(target)>; });
  });
}

struct Dimension {
  std::int64_t size, in_stride, out_stride;
};

}  // namespace

void convert(const TensorView& source, const TensorView& destination) {
  if (source.shape != destination.shape || source.strides.size() != source.shape.size() ||
      destination.strides.size() != destination.shape.size()) {
    throw ModelError("[mil::convert] shapes " + describe(source.shape) + " and " + describe(destination.shape) +
                     " differ or strides are missing");
  }
  const RowFunction row = row_function(source.dtype, destination.dtype);
  if (element_count(source.shape, "[mil::convert]") == 0) return;
  // Dimensions that continue each other on both sides are merged, so that a dense tensor is one row.
  std::vector<Dimension> dims;
  for (std::size_t i = 0; i < source.shape.size(); ++i) {
    if (source.shape[i] == 1) continue;
    const Dimension next{source.shape[i], source.strides[i], destination.strides[i]};
    if (!dims.empty() && dims.back().in_stride == next.size * next.in_stride &&
        dims.back().out_stride == next.size * next.out_stride) {
      dims.back() = {dims.back().size * next.size, next.in_stride, next.out_stride};
    } else {
      dims.push_back(next);
    }
  }
  Dimension inner{1, 1, 1};
  if (!dims.empty()) {
    inner = dims.back();
    dims.pop_back();
  }
  const auto in_width = static_cast<std::int64_t>(byte_width(source.dtype));
  const auto out_width = static_cast<std::int64_t>(byte_width(destination.dtype));
  const auto* in = static_cast<const std::uint8_t*>(source.data);
  auto* out = static_cast<std::uint8_t*>(destination.data);
  std::vector<std::int64_t> index(dims.size(), 0);
  for (;;) {
    row(in, inner.in_stride, out, inner.out_stride, inner.size);
    std::size_t d = dims.size();
    while (d-- > 0) {
      in += dims[d].in_stride * in_width;
      out += dims[d].out_stride * out_width;
      if (++index[d] < dims[d].size) break;
      in -= dims[d].size * dims[d].in_stride * in_width;
      out -= dims[d].size * dims[d].out_stride * out_width;
      index[d] = 0;
    }
    if (d == static_cast<std::size_t>(-1)) return;
  }
}

}  // namespace coremlsim::mil
