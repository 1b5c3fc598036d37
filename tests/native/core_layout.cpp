#include <doctest/doctest.h>

#include <limits>
#include <set>

#include "core_support.h"
#include "kvbacking/error.h"
#include "kvbacking/layout.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {
constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();

ErrorCode code_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  FAIL("no error was thrown");
  return ErrorCode::kModel;
}
}  // namespace

TEST_CASE("dtype names round-trip and unknown ones are refused") {
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt8}) {
    CHECK(dtype_from_name(dtype_name(dtype)) == dtype);
  }
  CHECK(element_size(DType::kFloat16) == 2);
  CHECK(element_size(DType::kInt8) == 1);
  CHECK(code_of([] { (void)dtype_from_name("bfloat16"); }) == ErrorCode::kInvalidArgument);
}

TEST_CASE("the Turbo layout") {
  const Layout turbo = Layout::dense(DType::kFloat16, {4, 1536, 1280});
  CHECK(turbo.element_strides == std::vector<std::int64_t>{1966080, 1280, 1});
  CHECK(turbo.byte_count() == 15728640);
  CHECK(turbo.span_byte_count() == 15728640);
  CHECK(turbo.row_length() == 1280);
  CHECK(turbo.row_count() == 6144);
  CHECK(turbo.is_dense());
  CHECK(turbo.is_row_padded());
  CHECK(turbo.describe() == "float16[4,1536,1280] strides [1966080,1280,1]");
  const Layout padded = Layout::padded_rows(DType::kFloat16, {4, 1536, 1280}, 1344);
  CHECK(padded.element_strides == std::vector<std::int64_t>{1344 * 1536, 1344, 1});
  CHECK_FALSE(padded.is_dense());
  CHECK(padded.is_row_padded());
  CHECK(padded.span_byte_count() == (6143 * 1344 + 1280) * 2);
  CHECK_FALSE(padded.overlaps_itself());
}

TEST_CASE("scalars, empty shapes and dimensions of one") {
  const Layout scalar = Layout::dense(DType::kFloat32, {});
  CHECK(scalar.element_count() == 1);
  CHECK(scalar.row_count() == 1);
  CHECK(scalar.row_length() == 1);
  CHECK(scalar.span_byte_count() == 4);
  const Layout empty = Layout::dense(DType::kFloat32, {3, 0, 2});
  CHECK(empty.element_count() == 0);
  CHECK(empty.row_count() == 0);
  CHECK(empty.span_byte_count() == 0);
  CHECK(empty.is_dense());
  CHECK_FALSE(empty.overlaps_itself());
  const Layout ones = Layout::strided(DType::kInt8, {1, 3, 1}, {-77, 1, 999});
  CHECK(ones.is_dense());
  CHECK(ones.is_row_padded());
  CHECK_FALSE(ones.overlaps_itself());
  CHECK(Layout::dense(DType::kInt8, {kHuge, 0, kHuge}).element_count() == 0);
}

TEST_CASE("counts that do not fit are refused") {
  CHECK(code_of([] { (void)Layout::dense(DType::kFloat16, {kHuge, 2}); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::dense(DType::kFloat16, {kHuge / 2 + 1}); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::strided(DType::kFloat16, {2, 2}, {kHuge, 1}); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::dense(DType::kFloat16, {-1}); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::strided(DType::kFloat16, {2, 2}, {1}); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::padded_rows(DType::kFloat16, {2, 8}, 7); }) == ErrorCode::kInvalidArgument);
  const Layout aggregate{DType::kFloat32, {kHuge, kHuge}, {1, 1}};
  CHECK(code_of([&] { (void)aggregate.byte_count(); }) == ErrorCode::kInvalidArgument);
  CHECK(code_of([] { (void)Layout::strided(DType::kInt8, {3}, {-1}).span_byte_count(); }) ==
        ErrorCode::kInvalidArgument);
}

TEST_CASE("row padding is recognised only where rows are dense and evenly spaced") {
  CHECK_FALSE(Layout::strided(DType::kInt8, {2, 3, 4}, {100, 8, 1}).is_row_padded());
  CHECK(Layout::strided(DType::kInt8, {2, 3, 4}, {24, 8, 1}).is_row_padded());
  CHECK_FALSE(Layout::strided(DType::kInt8, {2, 3, 4}, {24, 8, 2}).is_row_padded());
  CHECK_FALSE(Layout::strided(DType::kInt8, {3, 4}, {2, 1}).is_row_padded());
  CHECK_FALSE(Layout::strided(DType::kInt8, {3, 4}, {-4, 1}).is_row_padded());
  CHECK(Layout::strided(DType::kInt8, {1, 3, 4}, {-5, 9, 1}).is_row_padded());
}

TEST_CASE("self-overlap is never missed, and span and density match the element walk") {
  Random random(7);
  for (int round = 0; round < rounds(3000); ++round) {
    const std::vector<std::int64_t> shape = random_shape(random, 200);
    std::vector<std::int64_t> strides;
    for (std::size_t i = 0; i < shape.size(); ++i) strides.push_back(random.between(-6, 40));
    const Layout layout = random.chance(50) ? random_layout(random, DType::kInt8, shape, false)
                                            : Layout::strided(DType::kInt8, shape, strides);
    std::set<std::int64_t> offsets;
    bool dense = true;
    bool negative = false;
    for_each_element(layout, [&](std::int64_t logical, std::int64_t offset) {
      offsets.insert(offset);
      dense = dense && logical == offset;
      negative = negative || offset < 0;
    });
    CAPTURE(layout.describe());
    if (static_cast<std::int64_t>(offsets.size()) != layout.element_count()) CHECK(layout.overlaps_itself());
    CHECK(layout.is_dense() == dense);
    if (dense) CHECK(layout.is_row_padded());
    if (!negative) {
      CHECK(layout.span_byte_count() == (offsets.empty() ? 0u : static_cast<std::size_t>(*offsets.rbegin() + 1)));
    }
  }
}

TEST_CASE("permuted and gapped layouts are known to be distinct") {
  Random random(8);
  for (int round = 0; round < rounds(500); ++round) {
    const Layout layout = random_layout(random, DType::kFloat16, random_shape(random, 500), true);
    CAPTURE(layout.describe());
    CHECK_FALSE(layout.overlaps_itself());
  }
}
