#include "kvbacking/copy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "core/checked_math.h"
#include "core/convert.h"
#include "core/extent.h"
#include "core/half.h"
#include "core/stream.h"
#include "kvbacking/error.h"

namespace kvbacking {
namespace {

// One dimension of a copy after coalescing; strides in bytes.
struct Axis {
  std::int64_t size;
  std::int64_t source_stride;
  std::int64_t destination_stride;
};

enum class Conversion { kNone, kHalfToFloat, kFloatToHalf };

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "[copy] " + message);
}

Conversion conversion_between(const Layout& source, const Layout& destination) {
  if (source.dtype == destination.dtype) return Conversion::kNone;
  if (source.dtype == DType::kFloat16 && destination.dtype == DType::kFloat32) return Conversion::kHalfToFloat;
  if (source.dtype == DType::kFloat32 && destination.dtype == DType::kFloat16) return Conversion::kFloatToHalf;
  throw_invalid(std::string("no copy from ") + dtype_name(source.dtype) + " to " + dtype_name(destination.dtype) +
                ": dtypes must be equal, or float16 and float32");
}

// Drops dimensions of one and merges neighbours that are one run in both layouts. The last axis is the inner one.
std::vector<Axis> coalesced_axes(const Layout& source, const Layout& destination) {
  const auto source_size = static_cast<std::int64_t>(element_size(source.dtype));
  const auto destination_size = static_cast<std::int64_t>(element_size(destination.dtype));
  std::vector<Axis> axes;  // inner first while building
  for (std::size_t i = source.shape.size(); i-- > 0;) {
    if (source.shape[i] == 1) continue;
    const Axis axis{source.shape[i], checked_multiply(source.element_strides[i], source_size, "stride"),
                    checked_multiply(destination.element_strides[i], destination_size, "stride")};
    if (!axes.empty()) {
      Axis& inner = axes.back();
      std::int64_t source_run = 0;
      std::int64_t destination_run = 0;
      if (!__builtin_mul_overflow(inner.source_stride, inner.size, &source_run) && source_run == axis.source_stride &&
          !__builtin_mul_overflow(inner.destination_stride, inner.size, &destination_run) &&
          destination_run == axis.destination_stride) {
        inner.size *= axis.size;
        continue;
      }
    }
    axes.push_back(axis);
  }
  if (axes.empty()) axes.push_back({1, source_size, destination_size});
  std::ranges::reverse(axes);
  return axes;
}

template <std::size_t kSize>
void copy_strided(const std::byte* source, std::byte* destination, const Axis& axis) {
  for (std::int64_t i = 0; i < axis.size; ++i) {
    std::memcpy(destination + i * axis.destination_stride, source + i * axis.source_stride, kSize);
  }
}

void half_to_float_strided(const std::byte* source, std::byte* destination, const Axis& axis) {
  for (std::int64_t i = 0; i < axis.size; ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, source + i * axis.source_stride, sizeof half);
    const float value = half_to_float(half);
    std::memcpy(destination + i * axis.destination_stride, &value, sizeof value);
  }
}

void float_to_half_strided(const std::byte* source, std::byte* destination, const Axis& axis) {
  for (std::int64_t i = 0; i < axis.size; ++i) {
    float value = 0;
    std::memcpy(&value, source + i * axis.source_stride, sizeof value);
    const std::uint16_t half = float_to_half(value);
    std::memcpy(destination + i * axis.destination_stride, &half, sizeof half);
  }
}

using RunCopier = void (*)(const std::byte*, std::byte*, const Axis&);

void copy_dense_run(const std::byte* source, std::byte* destination, const Axis& axis) {
  std::memcpy(destination, source, static_cast<std::size_t>(axis.size * axis.source_stride));
}

void stream_dense_run(const std::byte* source, std::byte* destination, const Axis& axis) {
  stream_bytes()(source, destination, static_cast<std::size_t>(axis.size * axis.source_stride));
}

void half_to_float_dense(const std::byte* source, std::byte* destination, const Axis& axis) {
  convert_fp16_to_fp32(source, destination, static_cast<std::size_t>(axis.size));
}

void float_to_half_dense(const std::byte* source, std::byte* destination, const Axis& axis) {
  convert_fp32_to_fp16(source, destination, static_cast<std::size_t>(axis.size));
}

RunCopier choose_copier(const Axis& inner, std::size_t source_size, std::size_t destination_size, Conversion conversion,
                        Caching caching) {
  const bool dense = inner.source_stride == static_cast<std::int64_t>(source_size) &&
                     inner.destination_stride == static_cast<std::int64_t>(destination_size);
  switch (conversion) {
    case Conversion::kHalfToFloat:
      return dense ? half_to_float_dense : half_to_float_strided;
    case Conversion::kFloatToHalf:
      return dense ? float_to_half_dense : float_to_half_strided;
    case Conversion::kNone:
      break;
  }
  if (dense) return caching == Caching::kBypass ? stream_dense_run : copy_dense_run;
  switch (source_size) {
    case 1:
      return copy_strided<1>;
    case 2:
      return copy_strided<2>;
    case 4:
      return copy_strided<4>;
    default:
      return copy_strided<8>;
  }
}

// Source and destination are known not to overlap.
void copy_apart(const std::byte* source, const Layout& source_layout, std::byte* destination,
                const Layout& destination_layout, Conversion conversion, Caching caching = Caching::kUse) {
  const std::vector<Axis> axes = coalesced_axes(source_layout, destination_layout);
  const Axis& inner = axes.back();
  const RunCopier copy_run = choose_copier(inner, element_size(source_layout.dtype),
                                           element_size(destination_layout.dtype), conversion, caching);
  const std::size_t outer_rank = axes.size() - 1;
  std::vector<std::int64_t> index(outer_rank, 0);
  std::int64_t source_offset = 0;
  std::int64_t destination_offset = 0;
  while (true) {
    copy_run(source + source_offset, destination + destination_offset, inner);
    std::size_t axis = outer_rank;
    while (axis > 0) {
      const Axis& outer = axes[axis - 1];
      source_offset += outer.source_stride;
      destination_offset += outer.destination_stride;
      if (++index[axis - 1] < outer.size) break;
      index[axis - 1] = 0;
      source_offset -= outer.source_stride * outer.size;
      destination_offset -= outer.destination_stride * outer.size;
      --axis;
    }
    if (axis == 0) return;
  }
}

bool spans_overlap(const std::byte* a, const ByteExtent& a_extent, const std::byte* b, const ByteExtent& b_extent) {
  const auto a_address = reinterpret_cast<std::uintptr_t>(a);
  const auto b_address = reinterpret_cast<std::uintptr_t>(b);
  const auto end = [](std::uintptr_t address, std::int64_t offset) {
    return address + static_cast<std::uintptr_t>(offset);
  };
  return end(a_address, a_extent.begin) < end(b_address, b_extent.end) &&
         end(b_address, b_extent.begin) < end(a_address, a_extent.end);
}

void copy_through_temporary(const std::byte* source, const Layout& source_layout, std::byte* destination,
                            const Layout& destination_layout, Conversion conversion) {
  const Layout staged = Layout::dense(source_layout.dtype, source_layout.shape);
  const std::size_t byte_count = staged.byte_count();
  std::unique_ptr<std::byte[]> temporary(new (std::nothrow) std::byte[byte_count]);
  if (!temporary) {
    throw Error(ErrorCode::kAllocation,
                "[copy] overlapping source and destination need a temporary of " + std::to_string(byte_count) +
                    " bytes, which could not be allocated",
                {{"byte_count", static_cast<std::int64_t>(byte_count)}});
  }
  copy_apart(source, source_layout, temporary.get(), staged, Conversion::kNone);
  copy_apart(temporary.get(), staged, destination, destination_layout, conversion);
}

}  // namespace

void copy_elements(const void* source, const Layout& source_layout, void* destination, const Layout& destination_layout,
                   Caching caching) {
  validate_layout(source_layout);
  validate_layout(destination_layout);
  if (source_layout.shape != destination_layout.shape) {
    throw_invalid("shapes differ: source " + source_layout.describe() + ", destination " +
                  destination_layout.describe());
  }
  const Conversion conversion = conversion_between(source_layout, destination_layout);
  if (destination_layout.overlaps_itself()) {
    throw_invalid("destination " + destination_layout.describe() + " overlaps itself");
  }
  if (source_layout.element_count() == 0) return;
  if (source == nullptr || destination == nullptr) throw_invalid("null address for " + source_layout.describe());

  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(destination);
  if (!spans_overlap(from, byte_extent(source_layout), to, byte_extent(destination_layout))) {
    copy_apart(from, source_layout, to, destination_layout, conversion, caching);
    if (caching == Caching::kBypass) stream_fence();
  } else if (from == to && source_layout == destination_layout) {
    return;
  } else if (conversion == Conversion::kNone && source_layout.is_dense() && destination_layout.is_dense()) {
    std::memmove(to, from, source_layout.byte_count());
  } else {
    copy_through_temporary(from, source_layout, to, destination_layout, conversion);
  }
}

}  // namespace kvbacking
