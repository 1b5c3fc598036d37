// Loading, describing, the compiled-model cache, the plain control prediction, compute plans, host facts.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "coreml_support.h"
#include "kvbacking/compute_plan.h"

using namespace kvbacking;
using namespace kvbacking::test;
namespace fs = std::filesystem;

namespace {

struct ScratchFolder {
  fs::path path = fs::temp_directory_path() / ("kvbacking-test-" + std::to_string(std::rand()));
  ScratchFolder() { fs::create_directories(path); }
  ~ScratchFolder() { fs::remove_all(path); }
};

}  // namespace

TEST_CASE("a package is described as its specification says") {
  const auto model = load("projection.mlpackage");
  REQUIRE(model->inputs().size() == 1);
  CHECK(model->inputs()[0].name == "features");
  CHECK(model->inputs()[0].shape == std::vector<std::int64_t>{1, 5, 8});
  CHECK(model->inputs()[0].dtype == DType::kFloat16);
  CHECK(model->inputs()[0].kind_name == "multi_array");
  REQUIRE(model->outputs().size() == 2);
  CHECK(model->outputs()[0].name == "cross_k");
  CHECK(model->outputs()[1].name == "cross_v");
  CHECK(model->outputs()[1].shape == std::vector<std::int64_t>{2, 7, 8});
  CHECK_FALSE(model->outputs()[0].flexible);
  CHECK(model->states().empty());
}

TEST_CASE("a flexible package has ranges on its input and no shape on its outputs") {
  const auto model = load("flexible.mlpackage");
  REQUIRE(model->inputs().size() == 1);
  CHECK(model->inputs()[0].flexible);
  REQUIRE(model->inputs()[0].ranges.size() == 3);
  CHECK(model->inputs()[0].ranges[1] == std::pair<std::int64_t, std::int64_t>{8, 64});
  for (const TensorSpec& output : model->outputs()) CHECK(output.flexible);
}

TEST_CASE("what cannot be loaded is a model error with its path") {
  CHECK(error_of([] { Model::load("/nowhere.mlpackage", {}); }).code() == ErrorCode::kModel);
  ScratchFolder scratch;
  const fs::path broken = scratch.path / "broken.mlpackage";
  fs::create_directories(broken);
  std::ofstream(broken / "Manifest.json") << "{";
  const Error error = error_of([&] { Model::load(broken.string(), {}); });
  CHECK(error.code() == ErrorCode::kModel);
  CHECK(error.details().size() == 3);  // domain, code, description
  std::ofstream(scratch.path / "model.txt") << "text";
  CHECK(error_of([&] { Model::load((scratch.path / "model.txt").string(), {}); }).code() == ErrorCode::kModel);
}

TEST_CASE("the compiled form is cached, used again, and made again when it is damaged") {
  ScratchFolder scratch;
  LoadOptions options;
  options.cache_dir = (scratch.path / "cache").string();
  options.cache_key = "projection-key";
  const auto first = Model::load(data_path("projection.mlpackage"), options);
  const fs::path kept = scratch.path / "cache" / "projection-key.mlmodelc";
  CHECK(fs::equivalent(first->compiled_path(), kept));
  const auto stamp = fs::last_write_time(kept);
  CHECK(Model::load(data_path("projection.mlpackage"), options)->outputs().size() == 2);
  CHECK(fs::last_write_time(kept) == stamp);
  fs::remove_all(kept);
  fs::create_directories(kept);  // an empty, foreign entry
  CHECK(Model::load(data_path("projection.mlpackage"), options)->outputs().size() == 2);
  CHECK(std::distance(fs::directory_iterator(scratch.path / "cache"), {}) == 1);  // nothing partial is left
}

TEST_CASE("a compiled form that nobody caches goes with its model") {
  std::string compiled;
  {
    const auto model = load("projection.mlpackage");
    compiled = model->compiled_path();
    CHECK(fs::exists(compiled));
  }
  CHECK_FALSE(fs::exists(compiled));
}

TEST_CASE("a control prediction copies every output and checks its inputs all at once") {
  const auto model = load("projection.mlpackage");
  const Features features(1);
  const auto outputs = predict_once(*model, features.inputs());
  REQUIRE(outputs.size() == 2);
  CHECK(outputs[0].layout == Layout::dense(DType::kFloat16, {2, 7, 8}));
  CHECK_FALSE(same_bytes(control_values(*model, features, "cross_k"), control_values(*model, features, "cross_v")));

  const std::vector<float> wrong(6);
  const Error error = error_of([&] {
    predict_once(*model, {{"features", wrong.data(), Layout::dense(DType::kFloat32, {1, 6})},
                          {"other", wrong.data(), Layout::dense(DType::kFloat32, {6})}});
  });
  CHECK(error.code() == ErrorCode::kContract);
  CHECK(error.failures().size() == 3);  // dtype, shape, unknown name
  CHECK(error_of([&] { predict_once(*model, {}); }).failures().size() == 1);
}

TEST_CASE("caller arrays may have any strides") {
  const auto model = load("projection.mlpackage");
  const Features features(2);
  std::vector<_Float16> transposed(features.values.size());
  for (std::size_t i = 0; i < 5; ++i) {
    for (std::size_t j = 0; j < 8; ++j) transposed[j * 5 + i] = features.values[i * 8 + j];
  }
  const auto outputs =
      predict_once(*model, {{"features", transposed.data(), Layout::strided(DType::kFloat16, {1, 5, 8}, {40, 1, 5})}});
  CHECK(same_bytes(dense_values(outputs[0].memory.get(), outputs[0].layout),
                   control_values(*model, features, "cross_k")));
}

TEST_CASE("flexible outputs are predicted through the control, with the shape that came") {
  const auto model = load("flexible.mlpackage");
  const std::vector<_Float16> values(24 * 8, static_cast<_Float16>(0.5F));
  const auto outputs = predict_once(*model, {{"features", values.data(), Layout::dense(DType::kFloat16, {1, 24, 8})}});
  for (const OwnedOutput& output : outputs) CHECK(output.layout.shape[1] >= 24);
  const std::vector<_Float16> too_long(65 * 8);
  CHECK(error_of([&] {
          predict_once(*model, {{"features", too_long.data(), Layout::dense(DType::kFloat16, {1, 65, 8})}});
        }).code() == ErrorCode::kContract);
}

TEST_CASE("a compute plan lists operations with devices and costs") {
  const auto model = load("projection.mlpackage");
  double total = 0;
  const auto plan = compute_plan(*model);
  REQUIRE_FALSE(plan.empty());
  for (const PlannedOperation& operation : plan) {
    CHECK_FALSE(operation.op.empty());
    CHECK(operation.function == "main");
    total += operation.cost.value_or(0.0);
  }
  CHECK(total == doctest::Approx(1.0).epsilon(0.01));
}

TEST_CASE("the host says what it is") {
  const HostInfo info = host_info();
  CHECK((info.kind == "simulator" || info.kind == "coreml"));
  CHECK(info.page_size >= 4096);
  CHECK(info.surface_max_width > 0);
  CHECK(memory_footprint_byte_count() > 0);
}
