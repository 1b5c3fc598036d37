// The scan's reference: the obvious loop over an array of any layout, and contents that matter.
// Threads: each test its own. Ownership: an Array owns its bytes.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "core/element.h"
#include "core/extent.h"
#include "core_support.h"
#include "kvbacking/scan.h"
// After the rest.
#include <xxhash.h>

namespace kvbacking::test {

constexpr DType kTypes[] = {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt8};

// An array with its own memory: gaps hold 0xEE, the first element may be unaligned and strides negative.
struct Array {
  Array(Layout array_layout, std::size_t misalignment) : layout(std::move(array_layout)) {
    const ByteExtent extent = byte_extent(layout);
    origin = static_cast<std::size_t>(-extent.begin) + misalignment;
    bytes.assign(origin + static_cast<std::size_t>(extent.end), std::byte{0xEE});
  }
  std::byte* data() { return bytes.data() + origin; }
  std::byte* element(std::int64_t logical) {
    std::int64_t offset = 0;
    for (std::size_t i = layout.shape.size(); i-- > 0;) {
      offset += logical % layout.shape[i] * layout.element_strides[i];
      logical /= layout.shape[i];
    }
    return data() + offset * static_cast<std::int64_t>(element_size(layout.dtype));
  }
  void set_bits(std::int64_t logical, std::uint64_t bits) {
    std::memcpy(element(logical), &bits, element_size(layout.dtype));
  }
  std::uint64_t bits(std::int64_t logical) {
    std::uint64_t value = 0;
    std::memcpy(&value, element(logical), element_size(layout.dtype));
    return value;
  }
  double value(std::int64_t logical) {
    return visit_dtype(layout.dtype, [&]<class E>(E) { return static_cast<double>(E::read(element(logical))); });
  }
  Layout layout;
  std::vector<std::byte> bytes;
  std::size_t origin = 0;
};

inline bool is_live(const Layout& layout, const ScanOptions& options, std::int64_t logical) {
  if (!options.live) return true;
  const auto rank = static_cast<std::int64_t>(layout.shape.size());
  const auto axis = static_cast<std::size_t>(options.axis < 0 ? options.axis + rank : options.axis);
  for (std::size_t i = layout.shape.size(); i-- > axis + 1;) logical /= layout.shape[i];
  return logical % layout.shape[axis] < *options.live;
}

inline double pair_error(DType dtype, double a, double b) {
  if (a == b) return 0;
  if (dtype == DType::kFloat16 || dtype == DType::kFloat32) {
    return static_cast<double>(std::abs(static_cast<float>(a) - static_cast<float>(b)));
  }
  return std::abs(a - b);
}

// The obvious loop, one element after the other.
inline ScanResult reference_scan(Array& array, const ScanOptions& options, Array* other) {
  ScanResult r;
  r.element_count = array.layout.element_count();
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  bool any = false;
  const std::size_t size = element_size(array.layout.dtype);
  std::vector<std::byte> stream;
  ParityResult p;
  double sum = 0, dot = 0, aa = 0, bb = 0;
  std::int64_t pairs = 0;
  bool worst_set = false;
  for (std::int64_t i = 0; i < r.element_count; ++i) {
    const double value = array.value(i);
    const bool live = is_live(array.layout, options, i);
    stream.insert(stream.end(), array.element(i), array.element(i) + size);
    if (std::isnan(value)) {
      if (r.nan_count++ == 0) r.first_nan_index = i;
      r.live_nan_count += live;
    } else if (std::isinf(value)) {
      if (r.inf_count++ == 0) r.first_inf_index = i;
      r.live_inf_count += live;
    }
    if (options.fill_pattern) {
      const std::uint64_t mask = size == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * size)) - 1;
      if (array.bits(i) == (*options.fill_pattern & mask) && r.residue_count++ == 0) r.first_residue_index = i;
    }
    if (!live) {
      if (array.bits(i) != 0 && r.tail_dirty_count++ == 0) r.first_tail_dirty_index = i;
      continue;
    }
    if (value != 0) r.live_all_zero = false;
    if (!std::isnan(value)) {
      any = true;
      low = std::min(low, value);
      high = std::max(high, value);
    }
    if (other == nullptr) continue;
    const double b = other->value(i);
    if (std::isnan(value) || std::isnan(b)) {
      if (std::isnan(value) != std::isnan(b) && p.over_tolerance_count++ == 0) p.first_over_index = i;
      continue;
    }
    const double error = pair_error(array.layout.dtype, value, b);
    const bool infinite = std::isinf(value) || std::isinf(b);
    const double rel = error == 0 ? 0 : (infinite || b == 0 ? INFINITY : error / std::abs(b));
    if (!worst_set || error > p.max_abs_error) {
      p.max_abs_error = error;
      p.max_abs_index = i;
    }
    if (!worst_set || rel > p.max_rel_error) {
      p.max_rel_error = rel;
      p.max_rel_index = i;
    }
    worst_set = true;
    if (error > 0 && (infinite || error > options.max_abs + options.max_rel * std::abs(b)) &&
        p.over_tolerance_count++ == 0) {
      p.first_over_index = i;
    }
    ++pairs;
    sum += error;
    if (infinite) continue;
    dot += value * b;
    aa += value * value;
    bb += b * b;
  }
  r.min = any ? low : NAN;
  r.max = any ? high : NAN;
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(stream.data(), stream.size()));
  std::memcpy(r.digest.data(), canonical.digest, 16);
  if (other != nullptr) {
    p.mean_abs_error = pairs == 0 ? 0 : sum / static_cast<double>(pairs);
    p.cosine = aa == 0 || bb == 0 ? (aa == bb ? 1.0 : 0.0) : dot / (std::sqrt(aa) * std::sqrt(bb));
    r.parity = p;
  }
  return r;
}

inline bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
inline bool near(double a, double b) {
  return same(a, b) || std::abs(a - b) <= 1e-5 * std::max({1e-3, std::abs(a), std::abs(b)});
}

inline void check_equal(const ScanResult& a, const ScanResult& e) {
  CHECK(a.element_count == e.element_count);
  CHECK(a.nan_count == e.nan_count);
  CHECK(a.first_nan_index == e.first_nan_index);
  CHECK(a.inf_count == e.inf_count);
  CHECK(a.first_inf_index == e.first_inf_index);
  CHECK(a.live_nan_count == e.live_nan_count);
  CHECK(a.live_inf_count == e.live_inf_count);
  CHECK(a.live_all_zero == e.live_all_zero);
  CHECK_MESSAGE(same(a.min, e.min), a.min, " != ", e.min);
  CHECK_MESSAGE(same(a.max, e.max), a.max, " != ", e.max);
  CHECK(a.tail_dirty_count == e.tail_dirty_count);
  CHECK(a.first_tail_dirty_index == e.first_tail_dirty_index);
  CHECK(a.digest == e.digest);
  CHECK(a.residue_count == e.residue_count);
  CHECK(a.first_residue_index == e.first_residue_index);
  REQUIRE(a.parity.has_value() == e.parity.has_value());
  if (!a.parity) return;
  const ParityResult& p = *a.parity;
  const ParityResult& q = *e.parity;
  CHECK_MESSAGE(same(p.max_abs_error, q.max_abs_error), p.max_abs_error, " != ", q.max_abs_error);
  CHECK(p.max_abs_index == q.max_abs_index);
  CHECK_MESSAGE(same(p.max_rel_error, q.max_rel_error), p.max_rel_error, " != ", q.max_rel_error);
  CHECK(p.max_rel_index == q.max_rel_index);
  CHECK(p.over_tolerance_count == q.over_tolerance_count);
  CHECK(p.first_over_index == q.first_over_index);
  CHECK_MESSAGE(near(p.mean_abs_error, q.mean_abs_error), p.mean_abs_error, " != ", q.mean_abs_error);
  CHECK_MESSAGE(near(p.cosine, q.cosine), p.cosine, " != ", q.cosine);
}

inline void check_scan(Array& array, ScanOptions options, Array* other = nullptr) {
  CAPTURE(array.layout.describe());
  CAPTURE(options.live.value_or(-1));
  CAPTURE(options.axis);
  CAPTURE(options.threads);
  if (other != nullptr) {
    CAPTURE(other->layout.describe());
    options.reference = other->data();
    options.reference_layout = &other->layout;
  }
  const std::vector<std::byte> before = array.bytes;
  check_equal(scan(array.data(), array.layout, options), reference_scan(array, options, other));
  CHECK(array.bytes == before);
}

inline std::uint64_t bits_of(DType dtype, double value) {
  std::uint64_t bits = 0;
  switch (dtype) {
    case DType::kFloat16:
      return float_to_half(static_cast<float>(value));
    case DType::kFloat32: {
      const auto narrow = static_cast<float>(value);
      std::memcpy(&bits, &narrow, 4);
      return bits;
    }
    case DType::kFloat64:
      std::memcpy(&bits, &value, 8);
      return bits;
    case DType::kInt32:
      return static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    case DType::kInt8:
      break;
  }
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(value));
}

// Bit patterns that matter, per dtype: zeros, subnormals, extremes, infinities, quiet and signalling NaNs.
inline std::uint64_t special_bits(DType dtype, Random& random) {
  const auto pick = [&](std::initializer_list<std::uint64_t> values) {
    return values.begin()[random.between(0, static_cast<std::int64_t>(values.size()) - 1)];
  };
  switch (dtype) {
    case DType::kFloat16:
      return pick(
          {0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7C01, 0xFE00, 0x7FFF, 0xFFFF});
    case DType::kFloat32:
      return pick({0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000,
                   0x7F800001, 0xFFC00000, 0x7FFFFFFF});
    case DType::kFloat64:
      return pick({0, 0x8000000000000000, 1, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000,
                   0x7FF0000000000001, 0xFFF8000000000000});
    default:
      return pick({0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x80, 0x7F});
  }
}

inline void fill(Array& array, Random& random, int special_percent, int zero_percent) {
  const std::int64_t count = array.layout.element_count();
  for (std::int64_t i = 0; i < count; ++i) {
    if (random.chance(special_percent)) {
      array.set_bits(i, special_bits(array.layout.dtype, random));
    } else if (random.chance(zero_percent)) {
      array.set_bits(i, 0);
    } else {
      array.set_bits(i, bits_of(array.layout.dtype, static_cast<double>(random.between(-12000, 12000)) / 100.0));
    }
  }
}

}  // namespace kvbacking::test
