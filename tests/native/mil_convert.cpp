// convert(): rounding, saturation, strides; every pair of element types against an exact reference.
// Threads: one.
// Ownership: test-local buffers.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "mil/engine.h"

namespace {

using coremlsim::mil::convert;
using coremlsim::mil::DataType;
using coremlsim::mil::TensorView;

template <class T>
TensorView view(std::vector<T>& data, DataType type, std::vector<std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return {type, std::move(shape), std::move(strides), data.data()};
}

template <class From, class To>
std::vector<To> converted(std::vector<From> in, DataType from, DataType to) {
  std::vector<To> out(in.size());
  const auto n = static_cast<std::int64_t>(in.size());
  convert(view(in, from, {n}), view(out, to, {n}));
  return out;
}

// The nearest representable half, ties to even, from the definition: search among all 65536.
std::uint16_t nearest_half(float value) {
  std::uint16_t best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto candidate = static_cast<std::uint16_t>(bits);
    _Float16 half;
    std::memcpy(&half, &candidate, 2);
    const double d = std::fabs(static_cast<double>(half) - std::fabs(static_cast<double>(value)));
    if (d < distance || (d == distance && candidate % 2 == 0)) {
      distance = d;
      best = candidate;
    }
  }
  return static_cast<std::uint16_t>(best | (std::signbit(value) ? 0x8000 : 0));
}

}  // namespace

TEST_CASE("fp32 to fp16 rounds to nearest even") {
  std::vector<float> in = {
      0.0F,          -0.0F,         1.0F,          -2.5F,  65504.0F, 1.0F + 1.0F / 2048, 1.0F + 3.0F / 2048,
      5.9604645e-8F, 2.9802322e-8F, 2.9802326e-8F, 6.1e-5F};
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.0F, 100.0F);
  for (int i = 0; i < 40; ++i) in.push_back(normal(random));
  const auto out = converted<float, std::uint16_t>(in, DataType::kFloat32, DataType::kFloat16);
  for (std::size_t i = 0; i < in.size(); ++i) {
    CAPTURE(in[i]);
    CHECK(out[i] == nearest_half(in[i]));
  }
}

TEST_CASE("fp16 overflow, infinity and NaN") {
  const float infinity = std::numeric_limits<float>::infinity();
  const auto out = converted<float, std::uint16_t>({65519.0F, 65520.0F, -1e9F, infinity, -infinity, NAN},
                                                   DataType::kFloat32, DataType::kFloat16);
  CHECK(out[0] == 0x7BFF);
  CHECK(out[1] == 0x7C00);
  CHECK(out[2] == 0xFC00);
  CHECK(out[3] == 0x7C00);
  CHECK(out[4] == 0xFC00);
  CHECK((out[5] & 0x7C00) == 0x7C00);
  CHECK((out[5] & 0x03FF) != 0);
}

TEST_CASE("all halves survive the way to fp32 and back") {
  std::vector<std::uint16_t> in(65536);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::uint16_t>(i);
  const auto wide = converted<std::uint16_t, float>(in, DataType::kFloat16, DataType::kFloat32);
  const auto back = converted<float, std::uint16_t>(wide, DataType::kFloat32, DataType::kFloat16);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < in.size(); ++i) {
    const bool nan = (in[i] & 0x7C00) == 0x7C00 && (in[i] & 0x03FF) != 0;
    wrong += nan ? !std::isnan(wide[i]) : back[i] != in[i];
  }
  CHECK(wrong == 0);
}

TEST_CASE("a double is rounded to fp16 once") {
  // Just above the tie between 1 and 1 + 2^-10: through fp32 it would fall back to the tie and to even, which is 1.
  const auto out = converted<double, std::uint16_t>({1.0 + 0x1p-11 + 0x1p-40}, DataType::kFloat64, DataType::kFloat16);
  CHECK(out[0] == 0x3C01);
}

TEST_CASE("integers round and saturate") {
  const auto bytes = converted<float, std::int8_t>({0.5F, 1.5F, -0.5F, -1.5F, 127.4F, 300.0F, -300.0F, NAN, 1e30F},
                                                   DataType::kFloat32, DataType::kInt8);
  CHECK(bytes == std::vector<std::int8_t>{0, 2, 0, -2, 127, 127, -128, 0, 127});
  const auto words =
      converted<float, std::int32_t>({2147483648.0F, -2147483904.0F, 3e9F}, DataType::kFloat32, DataType::kInt32);
  CHECK(words == std::vector<std::int32_t>{2147483647, std::numeric_limits<std::int32_t>::min(), 2147483647});
  const auto narrow = converted<std::int32_t, std::int8_t>({-129, 128, 5}, DataType::kInt32, DataType::kInt8);
  CHECK(narrow == std::vector<std::int8_t>{-128, 127, 5});
  const auto unsigned_bytes = converted<std::int32_t, std::uint8_t>({-1, 256, 7}, DataType::kInt32, DataType::kUInt8);
  CHECK(unsigned_bytes == std::vector<std::uint8_t>{0, 255, 7});
  const auto bools = converted<std::uint8_t, float>({0, 1, 7}, DataType::kBool, DataType::kFloat32);
  CHECK(bools == std::vector<float>{0.0F, 1.0F, 1.0F});
}

TEST_CASE("any strides on both sides, and nothing else is touched") {
  std::vector<float> in(2 * 3 * 4);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i);
  // Source read transposed; destination rows padded from 3 to 5, planes from 4 rows to 6.
  const TensorView source{DataType::kFloat32, {2, 4, 3}, {12, 1, 4}, in.data()};
  for (const std::uint16_t fill : {std::uint16_t{0x1111}, std::uint16_t{0x2222}}) {
    std::vector<std::uint16_t> out(2 * 6 * 5, fill);
    convert(source, {DataType::kFloat16, {2, 4, 3}, {30, 5, 1}, out.data()});
    for (std::int64_t i = 0; i < 2; ++i) {
      for (std::int64_t j = 0; j < 6; ++j) {
        for (std::int64_t k = 0; k < 5; ++k) {
          const std::uint16_t got = out[static_cast<std::size_t>(i * 30 + j * 5 + k)];
          if (j < 4 && k < 3) {
            CHECK(got == nearest_half(in[static_cast<std::size_t>(i * 12 + k * 4 + j)]));
          } else {
            CHECK(got == fill);
          }
        }
      }
    }
  }
}

TEST_CASE("negative and zero strides of the source") {
  std::vector<std::int32_t> in = {1, 2, 3};
  std::vector<float> out(6);
  convert({DataType::kInt32, {2, 3}, {0, -1}, in.data() + 2}, {DataType::kFloat32, {2, 3}, {3, 1}, out.data()});
  CHECK(out == std::vector<float>{3, 2, 1, 3, 2, 1});
}

TEST_CASE("scalars, empty tensors, and what is refused") {
  std::vector<float> in = {4.5F}, out = {0.0F};
  convert({DataType::kFloat32, {}, {}, in.data()}, {DataType::kFloat32, {}, {}, out.data()});
  CHECK(out[0] == 4.5F);
  convert({DataType::kFloat32, {0, 3}, {3, 1}, nullptr}, {DataType::kFloat16, {0, 3}, {3, 1}, nullptr});
  CHECK_THROWS_AS(convert({DataType::kFloat32, {1}, {1}, in.data()}, {DataType::kFloat32, {2}, {1}, out.data()}),
                  coremlsim::mil::ModelError);
  CHECK_THROWS_AS(convert({DataType::kString, {1}, {1}, in.data()}, {DataType::kFloat32, {1}, {1}, out.data()}),
                  coremlsim::mil::ModelError);
}
