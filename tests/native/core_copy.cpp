#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "core/convert.h"
#include "core/extent.h"
#include "core/half.h"
#include "core_support.h"
#include "kvbacking/copy.h"
#include "kvbacking/error.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {

// Memory for a layout that may reach below its first element, with slack and an unaligned start.
struct Arena {
  Arena(const Layout& layout, std::size_t misalignment, std::uint8_t fill) {
    const ByteExtent extent = byte_extent(layout);
    const std::size_t start = static_cast<std::size_t>(-extent.begin) + misalignment;
    bytes.assign(start + static_cast<std::size_t>(extent.end) + 16, std::byte{fill});
    origin = start;
  }
  std::byte* data() { return bytes.data() + origin; }
  std::vector<std::byte> bytes;
  std::size_t origin = 0;
};

void randomise(Random& random, std::vector<std::byte>& bytes) {
  for (auto& byte : bytes) byte = std::byte{static_cast<std::uint8_t>(random.next())};
}

// The reference: one element at a time, all of the source read first.
void reference_copy(const std::byte* source, const Layout& from, std::byte* destination, const Layout& to) {
  const std::size_t source_size = element_size(from.dtype);
  const std::size_t size = element_size(to.dtype);
  std::vector<std::byte> values;
  for_each_element(from, [&](std::int64_t, std::int64_t offset) {
    const std::byte* element = source + offset * static_cast<std::int64_t>(source_size);
    if (from.dtype == to.dtype) {
      values.insert(values.end(), element, element + size);
    } else if (from.dtype == DType::kFloat16) {
      std::uint16_t half = 0;
      std::memcpy(&half, element, 2);
      const float value = half_to_float(half);
      values.resize(values.size() + 4);
      std::memcpy(values.data() + values.size() - 4, &value, 4);
    } else {
      float value = 0;
      std::memcpy(&value, element, 4);
      const std::uint16_t half = float_to_half(value);
      values.resize(values.size() + 2);
      std::memcpy(values.data() + values.size() - 2, &half, 2);
    }
  });
  for_each_element(to, [&](std::int64_t logical, std::int64_t offset) {
    std::memcpy(destination + offset * static_cast<std::int64_t>(size),
                values.data() + static_cast<std::size_t>(logical) * size, size);
  });
}

ErrorCode copy_error(const Layout& from, const Layout& to) {
  std::vector<std::byte> memory(4096);
  try {
    copy_elements(memory.data() + 1024, from, memory.data() + 2048, to);
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("no error was thrown");
  return ErrorCode::kModel;
}

}  // namespace

TEST_CASE("half precision: every fp16 value is exact in fp32 and comes back") {
  for (std::uint32_t half = 0; half <= 0xFFFF; ++half) {
    const float value = half_to_float(static_cast<std::uint16_t>(half));
    const std::uint32_t exponent = (half >> 10) & 31;
    const std::uint32_t mantissa = half & 0x3FF;
    if (exponent == 31 && mantissa != 0) {
      if (!std::isnan(value)) FAIL("not a NaN: " << half);
      if (!std::isnan(half_to_float(float_to_half(value)))) FAIL("NaN lost: " << half);
      continue;
    }
    double expected =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
    if (exponent == 31) expected = std::numeric_limits<double>::infinity();
    if (half & 0x8000) expected = -expected;
    if (static_cast<double>(value) != expected || std::signbit(value) != std::signbit(expected))
      FAIL("wrong value: " << half);
    if (float_to_half(value) != half) FAIL("does not come back: " << half);
  }
}

TEST_CASE("half precision: rounding is to nearest even at every boundary") {
  // Between each two neighbours: below, at and above the midpoint.
  for (std::uint32_t half = 0; half < 0x7BFF; ++half) {
    const double low = half_to_float(static_cast<std::uint16_t>(half));
    const double high = half_to_float(static_cast<std::uint16_t>(half + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    const std::uint32_t even = half % 2 == 0 ? half : half + 1;
    if (float_to_half(middle) != even) FAIL("midpoint above " << half);
    if (float_to_half(std::nextafter(middle, 0.0f)) != half) FAIL("below midpoint of " << half);
    if (float_to_half(std::nextafter(middle, 1e9f)) != half + 1) FAIL("above midpoint of " << half);
  }
  CHECK(float_to_half(65519.0f) == 0x7BFF);
  CHECK(float_to_half(65520.0f) == 0x7C00);
  CHECK(float_to_half(-1e30f) == 0xFC00);
  CHECK(float_to_half(0x1p-25f) == 0);
  CHECK(float_to_half(std::nextafter(0x1p-25f, 1.0f)) == 1);
}

TEST_CASE("converted rows equal the scalar conversion on every SIMD target, whatever the length and alignment") {
  for_each_target([](const char* target) {
    CAPTURE(target);
    std::vector<std::uint16_t> halves(0x10000 + 1);
    for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
    std::vector<float> floats(halves.size());
    convert_fp16_to_fp32(halves.data(), floats.data(), halves.size());
    for (std::size_t i = 0; i < halves.size(); ++i) {
      const float expected = half_to_float(halves[i]);
      if (std::isnan(expected) ? !std::isnan(floats[i]) : std::memcmp(&floats[i], &expected, 4) != 0) {
        FAIL("fp16 value " << i);
      }
    }
    Random random(3);
    for (std::size_t length = 0; length < 80; ++length) {
      std::vector<float> source(length + 1);
      for (auto& value : source) {
        auto bits = static_cast<std::uint32_t>(random.next());
        if (random.chance(80)) bits = (bits & 0x8FFFFFFFu) | 0x30000000u;  // mostly in fp16's range
        std::memcpy(&value, &bits, 4);
      }
      std::vector<std::uint16_t> first(length + 2, 0xAAAA);
      std::vector<std::uint16_t> second(length + 2, 0x5555);
      convert_fp32_to_fp16(source.data() + 1, first.data() + 1, length);
      convert_fp32_to_fp16(source.data() + 1, second.data() + 1, length);
      for (std::size_t i = 0; i < length; ++i) {
        const std::uint16_t expected = float_to_half(source[i + 1]);
        if (std::isnan(source[i + 1])) {
          CHECK(std::isnan(half_to_float(first[i + 1])));
        } else {
          CHECK(first[i + 1] == expected);
        }
        CHECK(first[i + 1] == second[i + 1]);
      }
      CHECK(first[0] == 0xAAAA);
      CHECK(first[length + 1] == 0xAAAA);
    }
  });
}

TEST_CASE("copies equal the element-wise reference, write every element and no gap") {
  Random random(11);
  constexpr DType kTypes[] = {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt8};
  for (int round = 0; round < rounds(1500); ++round) {
    const std::vector<std::int64_t> shape = random_shape(random, 3000);
    DType from_type = kTypes[random.between(0, 4)];
    DType to_type = from_type;
    if (random.chance(40)) {
      from_type = random.chance(50) ? DType::kFloat16 : DType::kFloat32;
      to_type = from_type == DType::kFloat16 ? DType::kFloat32 : DType::kFloat16;
    }
    Layout from = random_layout(random, from_type, shape, true);
    if (!shape.empty() && random.chance(10)) {
      std::vector<std::int64_t> strides = from.element_strides;
      strides[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(shape.size()) - 1))] = 0;
      from = Layout::strided(from_type, shape, strides);  // broadcast sources are fine
    }
    const Layout to = random_layout(random, to_type, shape, random.chance(20));
    CAPTURE(from.describe());
    CAPTURE(to.describe());
    Arena source(from, static_cast<std::size_t>(random.between(0, 3)), 0);
    randomise(random, source.bytes);
    if (from_type != to_type) {
      // NaN payloads may differ between the instruction and the reference; values may not.
      for_each_element(from, [&](std::int64_t, std::int64_t offset) {
        std::byte* element = source.data() + offset * static_cast<std::int64_t>(element_size(from_type));
        if (from_type == DType::kFloat16) {
          element[1] &= std::byte{0xBF};
        } else {
          element[3] &= std::byte{0xBF};
        }
      });
    }
    for (const std::uint8_t fill : {std::uint8_t{0x00}, std::uint8_t{0xFF}}) {
      Arena actual(to, static_cast<std::size_t>(random.between(0, 3)), fill);
      Arena expected = actual;
      copy_elements(source.data(), from, actual.data(), to);
      reference_copy(source.data(), from, expected.data(), to);
      CHECK(actual.bytes == expected.bytes);
    }
  }
}

TEST_CASE("overlapping source and destination behave as if the source had been read first") {
  Random random(12);
  for (int round = 0; round < rounds(1500); ++round) {
    const std::vector<std::int64_t> shape = random_shape(random, 400);
    const DType from_type = random.chance(70) ? DType::kFloat16 : DType::kFloat32;
    const DType to_type = random.chance(70) ? from_type : DType::kFloat32;
    const bool dense = random.chance(40);
    const Layout from = dense ? Layout::dense(from_type, shape) : random_layout(random, from_type, shape, true);
    const Layout to = dense ? Layout::dense(to_type, shape) : random_layout(random, to_type, shape, false);
    const ByteExtent a = byte_extent(from);
    const ByteExtent b = byte_extent(to);
    const auto room = static_cast<std::size_t>(a.end - a.begin + b.end - b.begin + 64);
    std::vector<std::byte> memory(2 * room);
    randomise(random, memory);
    for (std::size_t i = 1; i < memory.size(); i += 2) memory[i] &= std::byte{0xBB};  // neither format has a NaN
    std::vector<std::byte> expected = memory;
    const std::int64_t from_start = static_cast<std::int64_t>(room) - a.begin;
    const std::int64_t to_start = from_start + random.between(-20, 20) * 2;
    if (to_start + b.begin < 0 || to_start + b.end > static_cast<std::int64_t>(memory.size())) continue;
    CAPTURE(from.describe());
    CAPTURE(to.describe());
    copy_elements(memory.data() + from_start, from, memory.data() + to_start, to);
    reference_copy(expected.data() + from_start, from, expected.data() + to_start, to);
    CHECK(memory == expected);
  }
}

TEST_CASE("copying onto itself changes nothing") {
  std::vector<std::byte> memory(1000);
  Random random(5);
  randomise(random, memory);
  const std::vector<std::byte> before = memory;
  const Layout layout = Layout::padded_rows(DType::kFloat16, {5, 10}, 16);
  copy_elements(memory.data(), layout, memory.data(), layout);
  CHECK(memory == before);
}

TEST_CASE("what cannot be copied is refused") {
  const Layout half = Layout::dense(DType::kFloat16, {2, 3});
  CHECK(copy_error(half, Layout::dense(DType::kFloat16, {3, 2})) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(half, Layout::dense(DType::kFloat16, {6})) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(half, Layout::dense(DType::kInt32, {2, 3})) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(Layout::dense(DType::kFloat64, {2, 3}), half) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(half, Layout::strided(DType::kFloat16, {2, 3}, {0, 1})) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(half, Layout::strided(DType::kFloat16, {2, 3}, {2, 1})) == ErrorCode::kInvalidArgument);
  CHECK(copy_error(half, Layout{DType::kFloat16, {2, 3}, {1}}) == ErrorCode::kInvalidArgument);
  const Layout empty = Layout::dense(DType::kFloat16, {0, 3});
  copy_elements(nullptr, empty, nullptr, empty);
}
