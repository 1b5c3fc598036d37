// The package reader: a good package runs, and every broken one is a ModelError that says where.
// Threads: one, except where a case says otherwise.
// Ownership: test-local packages.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <map>
#include <thread>

#include "mil/engine.h"
#include "mil_package_writer.h"

namespace {

using namespace coremlsim::mil;
using namespace mil_test;
namespace fs = std::filesystem;

std::shared_ptr<const Program> load(const std::string& path) { return Program::create(Package::open(path), {}); }

std::string error_of(const std::string& path) {
  try {
    load(path);
  } catch (const ModelError& error) {
    return error.what();
  }
  return "no error";
}

void check_error(const std::string& path, const std::string& part) {
  const std::string error = error_of(path);
  CAPTURE(error);
  CHECK(error.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("a package loads, describes itself and computes") {
  const TemporaryPackage package;
  const auto opened = Package::open(package.path());
  CHECK(opened->specification_version() == 8);
  CHECK(opened->default_function() == "main");
  CHECK_FALSE(opened->is_multi_function());
  REQUIRE(opened->functions().size() == 1);
  CHECK(opened->functions()[0].inputs[0].shape == std::vector<std::int64_t>{2, 4});

  const auto program = Program::create(opened, {});
  const auto operations = program->operations();
  REQUIRE(operations.size() == 2);
  CHECK(operations[1].type == "linear");
  CHECK(operations[1].cost == doctest::Approx(1.0));

  std::vector<float> x = {1, 2, 3, 4, 0, 0, 0, 1};
  const auto run = program->new_run();
  const auto results = run->execute({{"x", {DataType::kFloat32, {2, 4}, {4, 1}, x.data()}}}, {});
  const auto* y = static_cast<const float*>(results.at("y").data);
  for (std::int64_t row = 0; row < 2; ++row) {
    for (std::int64_t n = 0; n < 3; ++n) {
      float expected = 0;
      for (std::int64_t k = 0; k < 4; ++k)
        expected += x[static_cast<std::size_t>(row * 4 + k)] * static_cast<float>(n * 4 + k - 5);
      CHECK(y[row * 3 + n] == doctest::Approx(expected));
    }
  }
}

TEST_CASE("runs of one program on several threads agree") {
  const TemporaryPackage package;
  const auto program = load(package.path());
  std::vector<std::thread> threads;
  std::vector<float> sums(4, 0.0F);
  for (std::size_t t = 0; t < sums.size(); ++t) {
    threads.emplace_back([&, t] {
      std::vector<float> x = {1, 2, 3, 4, 5, 6, 7, 8};
      const auto run = program->new_run();
      for (int i = 0; i < 50; ++i) {
        const auto results = run->execute({{"x", {DataType::kFloat32, {2, 4}, {4, 1}, x.data()}}}, {});
        sums[t] += static_cast<const float*>(results.at("y").data)[5];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const float sum : sums) CHECK(sum == sums[0]);
}

TEST_CASE("fp16 numerics round after every op, fp32 numerics do not round at all") {
  const TemporaryPackage package;
  Parts parts;
  parts.output_type = kHalf;
  package.model(parts);
  std::vector<float> x(8, 0.1F);  // times -5 .. 6: sums that no half represents
  const auto run = [&](Numerics numerics) {
    const auto program = Program::create(Package::open(package.path()), {.function = "", .numerics = numerics});
    const auto runner = program->new_run();
    const auto results = runner->execute({{"x", {DataType::kFloat32, {2, 4}, {4, 1}, x.data()}}}, {});
    const auto* y = static_cast<const float*>(results.at("y").data);
    return std::vector<float>(y, y + 6);
  };
  const std::vector<float> exact = run(Numerics::kFloat32), rounded = run(Numerics::kFloat16);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(rounded[i] == static_cast<float>(static_cast<_Float16>(exact[i])));
    CHECK(rounded[i] != exact[i]);
  }
}

TEST_CASE("a missing optional input is its default") {
  const TemporaryPackage package;
  Parts parts;
  const float fallback = 2.0F;
  parts.input_default = &fallback;
  package.model(parts);
  const auto run = load(package.path())->new_run();
  const auto results = run->execute({}, {});
  const auto* y = static_cast<const float*>(results.at("y").data);
  CHECK(y[0] == 2.0F * (-5 - 4 - 3 - 2));
  CHECK(y[5] == 2.0F * (3 + 4 + 5 + 6));
}

TEST_CASE("inputs that do not fit are refused by name") {
  const TemporaryPackage package;
  const auto run = load(package.path())->new_run();
  std::vector<float> x(20);
  CHECK_THROWS_WITH_AS(run->execute({}, {}), doctest::Contains("input 'x' is missing"), ModelError);
  CHECK_THROWS_WITH_AS(run->execute({{"x", {DataType::kFloat32, {2, 5}, {5, 1}, x.data()}}}, {}),
                       doctest::Contains("[2, 5]"), ModelError);
}

TEST_CASE("manifests") {
  const TemporaryPackage package;
  check_error("/does/not/exist.mlpackage", "/does/not/exist.mlpackage");
  package.write("Manifest.json", "{\"fileFormatVersion\": ");
  check_error(package.path(), "not a JSON object");
  package.write("Manifest.json", "[1, 2]");
  check_error(package.path(), "not a JSON object");
  package.write("Manifest.json", R"({"fileFormatVersion": "2.0.0"})");
  check_error(package.path(), "fileFormatVersion 2.0.0");
  package.write("Manifest.json",
                R"({"fileFormatVersion": "1.0.0", "rootModelIdentifier": "B", "itemInfoEntries": {}})");
  check_error(package.path(), "rootModelIdentifier B");
  for (const char* name : {"../../etc/passwd", "/etc/passwd", "com.apple.CoreML/../../x"}) {
    package.write(
        "Manifest.json",
        std::string(
            R"({"fileFormatVersion": "1.0.0", "rootModelIdentifier": "A", "itemInfoEntries": {"A": {"path": ")") +
            name + "\"}}}");
    check_error(package.path(), "may not be absolute or contain '..'");
  }
  package.write("Manifest.json", std::string(2 << 20, ' '));
  check_error(package.path(), "larger than 1 MiB");
  fs::remove(fs::path(package.path()) / "Manifest.json");
  check_error(package.path(), "no Manifest.json");
}

TEST_CASE("links that leave the package, loops, and what is no file") {
  const TemporaryPackage package, other;
  const fs::path weights = package.data() / "weights" / "weight.bin";
  fs::remove(weights);
  fs::create_symlink(other.data() / "weights" / "weight.bin", weights);
  check_error(package.path(), "leaves the package");
  fs::remove(weights);
  fs::create_symlink("weight.bin", weights);
  check_error(package.path(), "weight.bin");
  fs::remove(weights);
  REQUIRE(mkfifo(weights.c_str(), 0600) == 0);
  check_error(package.path(), "not a regular file");
  fs::remove(weights);
  check_error(package.path(), "weight.bin");
  package.write("Data/com.apple.CoreML/weights/real.bin", weight_bin());
  fs::create_symlink("real.bin", weights);  // inside: fine
  CHECK(error_of(package.path()) == "no error");
}

TEST_CASE("weight.bin") {
  const TemporaryPackage package;
  const auto with = [&](const std::string& bytes, const std::string& part) {
    package.weights(bytes);
    check_error(package.path(), part);
  };
  with(weight_bin(0xBADBEEF), "wrong magic");
  with(weight_bin(0xDEADBEEF, 2), "holds fp32");
  with(weight_bin(0xDEADBEEF, 99), "holds unknown");
  with(weight_bin(0xDEADBEEF, 1, 26), "holds 26 bytes");
  with(weight_bin(0xDEADBEEF, 1, 24, 192), "truncated");
  with(weight_bin(0xDEADBEEF, 1, 24, ~std::uint64_t{63}), "truncated");
  with(weight_bin(0xDEADBEEF, 1, 24, 130), "truncated");
  with(weight_bin().substr(0, 150), "truncated");
  with(weight_bin().substr(0, 100), "record lies beyond");
  with(weight_bin().substr(0, 20), "64-byte header");
  with("", "64-byte header");
  std::string version = weight_bin();
  version[4] = 3;
  with(version, "storage version 3");
}

TEST_CASE("references to weights") {
  const TemporaryPackage package;
  const auto with = [&](Parts parts, const std::string& part) {
    package.model(parts);
    check_error(package.path(), part);
  };
  Parts parts;
  parts.weight_file = "@model_path/../../../etc/passwd";
  with(parts, "'..'");
  parts.weight_file = "/etc/passwd";
  with(parts, "@model_path/");
  parts.weight_file = "@model_path/weights/none.bin";
  with(parts, "none.bin");
  parts = {};
  parts.weight_offset = 1;
  with(parts, "not a multiple of 64");
  parts.weight_offset = ~std::uint64_t{63};
  with(parts, "record lies beyond");
  parts = {};
  parts.weight_dims = {3, 5};
  with(parts, "needs 30");
  parts.weight_dims = {std::int64_t{1} << 40, 4};
  with(parts, "a dimension of");
  parts.weight_dims = std::vector<std::int64_t>(9, 1);
  with(parts, "rank");
  parts.weight_dims = std::vector<std::int64_t>(8, 60000);
  with(parts, "more than");
}

TEST_CASE("programs") {
  const TemporaryPackage package;
  const auto with = [&](Parts parts, const std::string& part) {
    package.model(parts);
    check_error(package.path(), part);
  };
  Parts parts;
  parts.op_type = "warp_drive";
  with(parts, "does not support the operation 'warp_drive'");
  with(parts, package.path());  // names the package
  parts = {};
  parts.op_input = "y";  // feeds itself
  with(parts, "used before it is defined");
  parts = {};
  parts.extra_operations = {operation("relu", {{"x", {"y"}}}, "y", tensor_type(kFloat, {2, 3}))};
  with(parts, "defined twice");
  parts = {};
  parts.block_output = "nothing";
  with(parts, "output 'nothing'");
  parts = {};
  parts.input_dims = {2, 5};
  with(parts, "[2, 4]");
  parts = {};
  parts.block_key = "CoreML6";
  with(parts, "no block for opset 'CoreML7'");
  parts = {};
  parts.extra_operations = {operation("relu", {}, "z", tensor_type(kFloat, {2, 3}))};
  with(parts, "no argument 'x'");
  parts.extra_operations = {operation("relu", {{"x", {"y"}}}, "z", tensor_type(kFloat, {2, 4}))};
  with(parts, "declared [2, 4]");
  parts.extra_operations = {
      operation("const", {}, "z", tensor_type(kFloat, {3}), float_value(tensor_type(kFloat, {3}), {1, 2}))};
  with(parts, "holds 8 bytes, expected 12");
  CHECK_THROWS_WITH_AS(Program::create(Package::open(TemporaryPackage().path()), {.function = "other"}),
                       doctest::Contains("no function 'other'"), ModelError);
}

TEST_CASE("blocks of control flow") {
  const auto type = tensor_type(kFloat, {2, 3});
  const auto block = [](const std::string& operations, const std::string& output) {
    return operations + message([&](auto& w) { w.add_string(2, output); });
  };
  const auto with_blocks = [](std::string bytes, const std::vector<std::string>& blocks) {
    for (const std::string& each : blocks) bytes += message([&](auto& w) { w.add_message(4, each); });
    return bytes;
  };
  const auto in_block = [](const std::string& bytes) { return message([&](auto& w) { w.add_message(3, bytes); }); };
  const TemporaryPackage package;
  const auto with = [&](const std::string& last, const std::string& part) {
    Parts parts;
    parts.extra_operations = {last};
    package.model(parts);
    check_error(package.path(), part);
  };
  const auto branch = operation("cond", {{"pred", {"y"}}}, "z", type);
  const auto relu = in_block(operation("relu", {{"x", {"y"}}}, "r", type));
  with(with_blocks(branch, {block(relu, "r")}), "op 'z' (cond): 1 blocks, expected 2");
  with(with_blocks(operation("relu", {{"x", {"y"}}}, "z", type), {relu}), "op 'z' (relu): 1 blocks, expected 0");
  {
    const auto lost = in_block(operation("relu", {{"x", {"nothing"}}}, "r", type));
    with(with_blocks(branch, {block(relu, "r"), block(lost, "r")}),
         "op 'z' (cond), block 1: op 'r' (relu): 'nothing' is used before it is defined");
  }
  with(with_blocks(branch, {block(relu, "r"), block(relu, "q")}), "block 1: output 'q' is never computed");
  {
    const auto unknown = in_block(operation("teleport", {{"x", {"y"}}}, "r", type));
    with(with_blocks(branch, {block(relu, "r"), block(unknown, "r")}), "does not support the operation 'teleport'");
  }
  {
    std::string nested = branch;
    for (int i = 0; i < 9; ++i) {
      const auto inner = block(in_block(nested), "z");
      nested = with_blocks(branch, {inner, inner.size() < 4096 ? inner : std::string()});
    }
    with(nested, "blocks nest deeper than 8");
  }
  {  // a loop whose condition gives nothing
    const auto loop = operation("while_loop", {{"loop_vars", {"y"}}}, "z", type);
    const auto inputs = message([&](auto& w) { w.add_message(1, named_type("v", type)); });
    Parts parts;
    parts.extra_operations = {with_blocks(loop, {inputs, inputs})};
    package.model(parts);
    const auto program = load(package.path());
    std::vector<float> x(8);
    const auto run = program->new_run();
    CHECK_THROWS_WITH_AS(run->execute({{"x", {DataType::kFloat32, {2, 4}, {4, 1}, x.data()}}}, {}),
                         doctest::Contains("the condition must be one bool"), ModelError);
  }
}

TEST_CASE("every truncation of the model is an error") {
  const TemporaryPackage package;
  const std::string whole = Parts{}.model();
  std::size_t silent = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    package.write("Data/com.apple.CoreML/model.mlmodel", whole.substr(0, length));
    silent += error_of(package.path()) == "no error";
  }
  CHECK(silent == 0);
}

TEST_CASE("flipped bits never do worse than an error") {
  const TemporaryPackage package;
  const std::string whole = Parts{}.model();
  for (std::size_t bit = 0; bit < whole.size() * 8; bit += 3) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    package.write("Data/com.apple.CoreML/model.mlmodel", bytes);
    (void)error_of(package.path());
  }
}
