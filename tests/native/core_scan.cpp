#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "core_scan_reference.h"
#include "core_support.h"
#include "kvbacking/error.h"
#include "kvbacking/scan.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {

ErrorCode scan_error(const Layout& layout, const ScanOptions& options) {
  std::vector<std::byte> memory(1024);
  try {
    (void)scan(memory.data(), layout, options);
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("no error was thrown");
  return ErrorCode::kModel;
}

}  // namespace

TEST_CASE("scan: the digest is XXH3-128 as xxhsum prints it") {
  const Layout layout = Layout::dense(DType::kInt8, {3});
  CHECK(scan("abc", layout).digest_hex() == "06b05ab6733a618578af5f94892f3950");
  CHECK(scan(nullptr, Layout::dense(DType::kInt8, {0})).digest_hex() == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("scan: empty arrays and scalars") {
  for (const DType dtype : kTypes) {
    Array empty(Layout::dense(dtype, {2, 0, 3}), 0);
    Array other(Layout::dense(dtype, {2, 0, 3}), 0);
    check_scan(empty, {}, &other);
    check_scan(empty, {.live = 0, .axis = 1});
    Array scalar(Layout::dense(dtype, {}), 0);
    scalar.set_bits(0, bits_of(dtype, -3));
    check_scan(scalar, {}, &scalar);
  }
}

TEST_CASE("scan: every single fp16 bit pattern alone, and as the odd one out") {
  for_each_target([](const char* target) {
    CAPTURE(target);
    Array one(Layout::dense(DType::kFloat16, {1}), 0);
    Array many(Layout::dense(DType::kFloat16, {300}), 0);
    constexpr std::uint32_t kStep = rounds(8) == 8 ? 97 : 997;
    Random random(1);
    for (std::uint32_t bits = 0; bits <= 0xFFFF; bits += (bits & 0x3FF) > 3 && (bits & 0x3FF) < 0x3F0 ? kStep : 1) {
      one.set_bits(0, bits);
      check_scan(one, {});
      for (std::int64_t i = 0; i < 300; ++i) many.set_bits(i, bits_of(DType::kFloat16, 1.5));
      many.set_bits(random.between(0, 299), bits);
      check_scan(many, {.live = random.between(0, 300)});
    }
  });
}

TEST_CASE("scan: equals the reference on every target for all dtypes, layouts, ranges and contents") {
  for_each_target([](const char* target) {
    CAPTURE(target);
    Random random(21);
    for (int round = 0; round < rounds(1200); ++round) {
      const DType dtype = kTypes[random.between(0, 4)];
      const std::vector<std::int64_t> shape = random_shape(random, 4000);
      Array array(random_layout(random, dtype, shape, true), static_cast<std::size_t>(random.between(0, 3)));
      fill(array, random, random.chance(50) ? 0 : static_cast<int>(random.between(1, 30)),
           random.chance(30) ? 100 : 10);
      ScanOptions options;
      if (!shape.empty() && random.chance(70)) {
        const auto rank = static_cast<std::int64_t>(shape.size());
        options.axis = random.between(-rank, rank - 1);
        options.live = random.between(0, shape[static_cast<std::size_t>((options.axis + rank) % rank)]);
      }
      if (random.chance(30)) options.fill_pattern = special_bits(dtype, random);
      options.threads = random.chance(20) ? static_cast<int>(random.between(2, 4)) : 1;
      if (random.chance(50)) {
        check_scan(array, options);
        continue;
      }
      const bool floating = dtype == DType::kFloat16 || dtype == DType::kFloat32;
      const DType other_type =
          floating && random.chance(40) ? (random.chance(50) ? DType::kFloat16 : DType::kFloat32) : dtype;
      Array other(random_layout(random, other_type, shape, true), static_cast<std::size_t>(random.between(0, 3)));
      fill(other, random, random.chance(50) ? 0 : 10, 10);
      for (std::int64_t i = 0; i < array.layout.element_count(); ++i) {
        if (!random.chance(80)) continue;  // mostly close to each other
        const double value = array.value(i);
        if (floating || std::isfinite(value))
          other.set_bits(i, bits_of(other_type, floating && random.chance(50) ? value * 1.001 : value));
      }
      options.max_abs = random.chance(50) ? 0.0 : static_cast<double>(random.between(0, 100)) / 1000.0;
      options.max_rel = random.chance(50) ? 0.0 : static_cast<double>(random.between(0, 100)) / 10000.0;
      check_scan(array, options, &other);
    }
  });
}

TEST_CASE("scan: arrays larger than a unit, dense, padded and permuted, on one to three threads") {
  for_each_target([](const char* target) {
    CAPTURE(target);
    Random random(22);
    const std::vector<std::int64_t> shape = {2, 67, 640};
    for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kInt8}) {
      const Layout layouts[] = {Layout::dense(dtype, shape), Layout::padded_rows(dtype, shape, 704),
                                Layout::strided(dtype, shape, {1, 2 * 640, 2}),
                                Layout::strided(dtype, shape, {90000, 645, 1}),
                                Layout::strided(dtype, shape, {-50000, -700, 1})};
      for (const Layout& layout : layouts) {
        for (const Layout& other_layout : {layouts[0], layouts[1], layouts[2]}) {
          Array array(layout, 1);
          Array other(other_layout, 0);
          fill(array, random, 0, 5);
          fill(other, random, 0, 5);
          for (std::int64_t i = 0; i < array.layout.element_count(); ++i) {
            if (i % 17 != 0) other.set_bits(i, array.bits(i));
          }
          const bool contaminated = random.chance(50);
          if (contaminated) array.set_bits(random.between(0, layout.element_count() - 1), special_bits(dtype, random));
          ScanOptions options{.live = 60, .axis = 1, .max_abs = 0.5};
          const ScanResult expected = reference_scan(array, options, &other);
          options.reference = other.data();
          options.reference_layout = &other.layout;
          CAPTURE(layout.describe());
          CAPTURE(other_layout.describe());
          for (options.threads = 1; options.threads <= 3; ++options.threads) {
            check_equal(scan(array.data(), layout, options), expected);
          }
        }
      }
    }
  });
}

TEST_CASE("scan: the same values have the same digest however they are laid out") {
  Random random(23);
  const std::vector<std::int64_t> shape = {3, 50, 300};
  Array dense(Layout::dense(DType::kFloat16, shape), 0);
  fill(dense, random, 5, 5);
  const std::string digest = scan(dense.data(), dense.layout).digest_hex();
  for (const Layout& layout :
       {Layout::padded_rows(DType::kFloat16, shape, 332), Layout::strided(DType::kFloat16, shape, {1, 900, 3}),
        Layout::strided(DType::kFloat16, shape, {-15000, 300, 1})}) {
    Array other(layout, 0);
    for (std::int64_t i = 0; i < layout.element_count(); ++i) other.set_bits(i, dense.bits(i));
    CHECK(scan(other.data(), layout).digest_hex() == digest);
    CHECK(scan(other.data(), layout, {.threads = 2}).digest_hex() == digest);
    other.set_bits(layout.element_count() - 1, other.bits(layout.element_count() - 1) ^ 1);
    CHECK(scan(other.data(), layout).digest_hex() != digest);
  }
}

TEST_CASE("scan: a single bad element is found wherever it is") {
  for_each_target([](const char* target) {
    CAPTURE(target);
    const std::vector<std::int64_t> shape = {2, 10, 640};
    const std::int64_t last = 2 * 10 * 640 - 1;
    for (const std::int64_t padding : {0, 96}) {
      Array array(Layout::padded_rows(DType::kFloat16, shape, 640 + padding), 0);
      Array control(Layout::dense(DType::kFloat16, shape), 0);
      Random random(24);
      const ScanOptions options{.live = 7, .axis = 1};
      for (std::int64_t i = 0; i <= last; ++i) {
        const std::uint64_t bits = is_live(array.layout, options, i) ? bits_of(DType::kFloat16, 2.0) : 0;
        array.set_bits(i, bits);
        control.set_bits(i, bits);
      }
      std::vector<std::int64_t> places = {0, 1, 7 * 640 - 1, 7 * 640, 10 * 640 - 1, 10 * 640, last - 1, last};
      for (int i = 0; i < rounds(40); ++i) places.push_back(random.between(0, last));
      for (const std::int64_t place : places) {
        for (const std::uint64_t bits : {0x7C00u, 0xFC00u, 0x7E00u, 0xFE00u, 0x7C01u, 0x8000u, 0x0001u}) {
          const std::uint64_t before = array.bits(place);
          array.set_bits(place, bits);
          check_scan(array, options, &control);
          array.set_bits(place, before);
        }
      }
    }
  });
}

TEST_CASE("scan: tiny and huge fp32 values keep cosine and mean meaningful") {
  for (const double scale : {1e-30, 1e-42, 1e30}) {
    Array a(Layout::dense(DType::kFloat32, {1000}), 0);
    Array b(Layout::dense(DType::kFloat32, {1000}), 0);
    Random random(25);
    for (std::int64_t i = 0; i < 1000; ++i) {
      const auto value = static_cast<double>(random.between(-1000, 1000)) / 500.0;
      a.set_bits(i, bits_of(DType::kFloat32, value * scale));
      b.set_bits(i, bits_of(DType::kFloat32, -value * scale));
    }
    ScanOptions options{.reference = b.data(), .reference_layout = &b.layout};
    const ScanResult result = scan(a.data(), a.layout, options);
    CAPTURE(scale);
    CHECK(result.parity->cosine == doctest::Approx(-1.0));
    CHECK(result.parity->max_rel_error == doctest::Approx(2.0));
  }
}

TEST_CASE("scan: results do not depend on the number of threads") {
  Random random(26);
  Array a(Layout::dense(DType::kFloat16, {40, 80, 128}), 0);
  Array b(a.layout, 0);
  fill(a, random, 0, 5);
  fill(b, random, 0, 5);
  ScanOptions options{.reference = b.data(), .reference_layout = &b.layout};
  const ScanResult one = scan(a.data(), a.layout, options);
  for (int threads = 2; threads <= 5; ++threads) {
    options.threads = threads;
    const ScanResult many = scan(a.data(), a.layout, options);
    CHECK(many.parity->mean_abs_error == one.parity->mean_abs_error);
    CHECK(many.parity->cosine == one.parity->cosine);
    check_equal(many, one);
  }
}

TEST_CASE("scan: what cannot be scanned is refused") {
  const Layout layout = Layout::dense(DType::kFloat16, {4, 8});
  const Layout other = Layout::dense(DType::kFloat16, {8, 4});
  const Layout integers = Layout::dense(DType::kInt8, {4, 8});
  std::vector<std::byte> memory(1024);
  CHECK(scan_error(layout, {.live = 5}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.live = -1}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.live = 1, .axis = 2}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.live = 1, .axis = -3}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(Layout::dense(DType::kFloat16, {}), {.live = 1}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.threads = 0}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.reference = memory.data()}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.reference = memory.data(), .reference_layout = &other}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.reference = memory.data(), .reference_layout = &integers}) == ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.reference = memory.data(), .reference_layout = &layout, .max_abs = -1}) ==
        ErrorCode::kInvalidArgument);
  CHECK(scan_error(layout, {.reference = memory.data(), .reference_layout = &layout, .max_rel = NAN}) ==
        ErrorCode::kInvalidArgument);
}
