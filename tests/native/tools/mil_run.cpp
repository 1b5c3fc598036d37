// Runs one .mlpackage with raw tensors from a folder: the entry of the Python op tests and of the benchmark.
// Threads: one.
// Ownership: none beyond main().
//
//   mil_run PACKAGE FOLDER [--function NAME] [--fp16] [--threads N] [--repeat N]
//
// FOLDER/inputs.txt has one line per tensor: "NAME DTYPE DIM,DIM,... FILE" ("-" for no dimensions); states are listed
// in states.txt and written back. Results are written as FOLDER/out.NAME.bin and listed in FOLDER/outputs.txt with the
// engine's own element type. With --repeat the run is repeated and every wall time printed, one "run SECONDS" per line.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "mil/engine.h"
#include "mil/program/program.h"

namespace {

using coremlsim::mil::DataType;
using coremlsim::mil::TensorView;

const std::map<std::string, DataType> kTypes = {
    {"bool", DataType::kBool},       {"float16", DataType::kFloat16}, {"float32", DataType::kFloat32},
    {"float64", DataType::kFloat64}, {"int8", DataType::kInt8},       {"uint8", DataType::kUInt8},
    {"int16", DataType::kInt16},     {"uint16", DataType::kUInt16},   {"int32", DataType::kInt32}};

std::string name_of(DataType type) {
  for (const auto& [name, value] : kTypes) {
    if (value == type) return name;
  }
  return "other";
}

// Of this executable alone: getrusage would carry over the peak of the process that started it.
std::int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    std::int64_t kilobytes = 0;
    if (key == "VmHWM:" && status >> kilobytes) return kilobytes * 1024;
  }
  return 0;
}

struct Tensor {
  std::string path;
  std::vector<char> bytes;
  TensorView view;
};

std::map<std::string, Tensor> read_list(const std::string& folder, const std::string& list) {
  std::map<std::string, Tensor> tensors;
  std::ifstream lines(folder + "/" + list);
  std::string name, dtype, dims, file;
  while (lines >> name >> dtype >> dims >> file) {
    Tensor& tensor = tensors[name];
    tensor.path = folder + "/" + file;
    std::ifstream data(tensor.path, std::ios::binary);
    tensor.bytes.assign(std::istreambuf_iterator<char>(data), {});
    tensor.view.dtype = kTypes.at(dtype);
    std::istringstream parts(dims == "-" ? "" : dims);
    for (std::string part; std::getline(parts, part, ',');) tensor.view.shape.push_back(std::stoll(part));
    std::int64_t stride = 1;
    tensor.view.strides.resize(tensor.view.shape.size());
    for (std::size_t i = tensor.view.shape.size(); i-- > 0;) {
      tensor.view.strides[i] = stride;
      stride *= tensor.view.shape[i];
    }
    if (tensor.bytes.size() != static_cast<std::size_t>(stride) * byte_width(tensor.view.dtype)) {
      throw std::runtime_error(tensor.path + ": wrong size");
    }
    tensor.view.data = tensor.bytes.data();
  }
  return tensors;
}

std::map<std::string, TensorView> views(const std::map<std::string, Tensor>& tensors) {
  std::map<std::string, TensorView> result;
  for (const auto& [name, tensor] : tensors) result.emplace(name, tensor.view);
  return result;
}

void write_outputs(const std::string& folder, const std::map<std::string, TensorView>& outputs) {
  std::ofstream list(folder + "/outputs.txt");
  for (const auto& [name, view] : outputs) {
    std::int64_t count = 1;
    std::string dims;
    for (const std::int64_t d : view.shape) {
      count *= d;
      dims += (dims.empty() ? "" : ",") + std::to_string(d);
    }
    std::ofstream data(folder + "/out." + name + ".bin", std::ios::binary);
    data.write(static_cast<const char*>(view.data), count * static_cast<std::int64_t>(byte_width(view.dtype)));
    list << name << ' ' << name_of(view.dtype) << ' ' << (dims.empty() ? "-" : dims) << '\n';
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string package_path = arguments.at(0), folder = arguments.at(1);
  coremlsim::mil::ProgramOptions options;
  int repeat = 0;
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    if (arguments[i] == "--fp16") options.numerics = coremlsim::mil::Numerics::kFloat16;
    if (arguments[i] == "--function") options.function = arguments.at(++i);
    if (arguments[i] == "--threads") options.threads = std::stoi(arguments.at(++i));
    if (arguments[i] == "--repeat") repeat = std::stoi(arguments.at(++i));
  }
  using Clock = std::chrono::steady_clock;
  const auto seconds = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };

  const auto start_bytes = peak_bytes();
  const auto begin = Clock::now();
  const auto package = coremlsim::mil::Package::open(package_path);
  const auto program = coremlsim::mil::Program::create(package, options);
  if (repeat > 0) std::cout << "load " << seconds(begin) << '\n';
  const auto inputs = read_list(folder, "inputs.txt");
  auto states = read_list(folder, "states.txt");
  const auto runner = program->new_run();
  auto outputs = runner->execute(views(inputs), views(states));
  write_outputs(folder, outputs);
  for (auto& [name, state] : states) {
    std::ofstream(state.path, std::ios::binary)
        .write(state.bytes.data(), static_cast<std::streamsize>(state.bytes.size()));
  }
  for (int i = 0; i < repeat; ++i) {
    const auto start = Clock::now();
    outputs = runner->execute(views(inputs), views(states));
    std::cout << "run " << seconds(start) << '\n';
  }
  if (repeat > 0) {
    std::cout << "start_rss_bytes " << start_bytes << "\npeak_rss_bytes " << peak_bytes() << '\n';
    const auto& impl = dynamic_cast<const coremlsim::mil::ProgramImpl&>(*program);
    coremlsim::mil::InputShapes shapes;
    for (std::size_t i = 0; i < impl.graph().inputs.size(); ++i) shapes.push_back(impl.default_shape(i));
    if (const auto plan = impl.plan_for(shapes)) {
      std::cout << "decoded_bytes " << impl.constants().byte_count() << '\n';
      std::cout << "peak_live_bytes " << plan->peak_live_bytes << "\narena_bytes " << plan->arena_bytes << '\n';
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 3)
      throw std::runtime_error("usage: mil_run PACKAGE FOLDER [--function NAME] [--fp16] [--threads N] [--repeat N]");
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
