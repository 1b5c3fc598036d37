// The memory plan: no two tensors that live at one time share bytes, and what a program occupies beside its weights
// stays within twice the largest set of tensors alive at one time. By the plan's own accounting; nothing is timed.
// Threads: one.
// Ownership: test-local.
#include <doctest/doctest.h>

#include <random>

#include "mil/program/plan.h"
#include "mil/program/program.h"
#include "mil_package_writer.h"

namespace {

using namespace coremlsim::mil;
using namespace mil_test;

void check_places(const Plan& plan) {
  for (const PlannedBuffer& a : plan.buffers) {
    if (a.bytes == 0) continue;
    CHECK(a.offset >= 0);
    CHECK(a.offset % kAlignment == 0);
    CHECK(a.offset + a.bytes <= plan.arena_bytes);
    for (const PlannedBuffer& b : plan.buffers) {
      const bool together = a.first <= b.last && b.first <= a.last;
      if (&a == &b || b.bytes == 0 || !together) continue;
      CHECK((a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset));
    }
  }
  CHECK(plan.arena_bytes >= plan.peak_live_bytes);
}

// Lifetimes like those of a network: most tensors are short-lived, some are skipped over a few steps, outputs stay.
Plan random_plan(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Plan plan;
  const int steps = pick(1, 80);
  plan.node_cost.resize(static_cast<std::size_t>(steps));
  for (int step = 0; step < steps; ++step) {
    for (int i = pick(0, 3); i > 0; --i) {
      const int kind = pick(0, 9);
      const int last = kind == 0 ? steps : std::min(steps, step + (kind < 3 ? pick(0, 12) : pick(0, 2)));
      plan.buffers.push_back({std::int64_t{1} << pick(0, 20), step, last, -1});
      if (pick(0, 4) == 0) plan.buffers.back().bytes = 0;
    }
  }
  return plan;
}

constexpr std::int64_t kRows = 512, kWidth = 64;

std::string rows_type() { return tensor_type(kFloat, {kRows, kWidth}); }

// x -> `blocks` times (linear, gelu, add the input of the block) -> y, and the first block's result as an output too.
std::string residual_program(int blocks) {
  const std::string weight_type = tensor_type(kHalf, {kWidth, kWidth}), bias_type = tensor_type(kHalf, {kWidth});
  const std::string block = message([&](auto& w) {
    w.add_string(2, "block" + std::to_string(blocks));
    w.add_string(2, "block1");
    std::string before = "x";
    for (int i = 1; i <= blocks; ++i) {
      const std::string n = std::to_string(i), after = "block" + n;
      const auto value = blob_value(weight_type, "@model_path/weights/weight.bin", 64);
      const auto bias = blob_value(bias_type, "@model_path/weights/weight.bin", 128);
      w.add_message(3, operation("const", {}, "w" + n, weight_type, value));
      w.add_message(3, operation("const", {}, "b" + n, bias_type, bias));
      w.add_message(
          3, operation("linear", {{"x", {before}}, {"weight", {"w" + n}}, {"bias", {"b" + n}}}, "p" + n, rows_type()));
      w.add_message(3, operation("relu", {{"x", {"p" + n}}}, "a" + n, rows_type()));
      w.add_message(3, operation("add", {{"x", {"a" + n}}, {"y", {before}}}, after, rows_type()));
      before = after;
    }
  });
  const std::string function = message([&](auto& w) {
    w.add_message(1, named_type("x", rows_type()));
    w.add_string(2, "CoreML7");
    w.add_message(3, entry("CoreML7", block));
  });
  const std::string description = message([&](auto& w) {
    w.add_message(1, feature("x", kArrayFloat, {kRows, kWidth}));
    w.add_message(10, feature("block" + std::to_string(blocks), kArrayFloat, {kRows, kWidth}));
    w.add_message(10, feature("block1", kArrayFloat, {kRows, kWidth}));
  });
  return message([&](auto& w) {
    w.add_uint64(1, 8);
    w.add_message(2, description);
    w.add_message(502, message([&](auto& program) { program.add_message(2, entry("main", function)); }));
  });
}

// Records of the weight (at 64) and the bias (at 128), then their bytes.
std::string residual_weights() {
  std::string file(192 + 2 * kWidth * kWidth + 2 * kWidth, '\0');
  const std::uint32_t header[2] = {2, 2}, record[2] = {0xDEADBEEF, 1};
  std::memcpy(file.data(), header, sizeof header);
  const std::uint64_t sizes[2] = {2 * kWidth * kWidth, 2 * kWidth}, places[2] = {192, 192 + 2 * kWidth * kWidth};
  for (std::size_t i = 0; i < 2; ++i) {
    char* at = file.data() + 64 * (i + 1);
    std::memcpy(at, record, sizeof record);
    std::memcpy(at + 8, &sizes[i], 8);
    std::memcpy(at + 16, &places[i], 8);
  }
  return file;
}

}  // namespace

TEST_CASE("buffers that live together never share bytes, and little is lost between them") {
  double largest = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    Plan plan = random_plan(seed);
    place_buffers(plan);
    check_places(plan);
    if (plan.peak_live_bytes == 0) continue;
    largest = std::max(largest, static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.peak_live_bytes));
  }
  CHECK(largest <= 2.0);
}

TEST_CASE("a program occupies at most twice its largest set of live tensors beside its weights") {
  const TemporaryPackage package;
  package.weights(residual_weights());
  std::int64_t peak_of_one = 0;
  for (const int blocks : {3, 4, 12}) {
    CAPTURE(blocks);
    package.write("Data/com.apple.CoreML/model.mlmodel", residual_program(blocks));
    const auto program =
        std::dynamic_pointer_cast<const ProgramImpl>(Program::create(Package::open(package.path()), {}));
    REQUIRE(program);
    CHECK(program->constants().byte_count() == 0);  // nothing is decoded by a load
    const auto plan = program->plan_for({{kRows, kWidth}});
    REQUIRE(plan);
    check_places(*plan);
    std::vector<float> x(kRows * kWidth, 1.0F);
    const auto run = program->new_run();
    for (int i = 0; i < 2; ++i) {
      (void)run->execute({{"x", {DataType::kFloat32, {kRows, kWidth}, {kWidth, 1}, x.data()}}}, {});
      CHECK(program->constants().byte_count() == blocks * kWidth * 4);  // the biases, once; the weights never
    }
    CHECK(plan->arena_bytes + program->constants().byte_count() <= 2 * plan->peak_live_bytes);
    // Dead tensors give their place to later ones: depth costs nothing.
    if (blocks == 3) peak_of_one = plan->arena_bytes;
    if (blocks == 12) CHECK(plan->arena_bytes == peak_of_one);
  }
}
