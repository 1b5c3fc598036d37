// Embeds kvbacking in a plain C++ program: load a package, propose backings, predict, prove, read K/V, print JSON.
//   embed_cpp PACKAGE MECHANISM LIVE INPUT=FILE...
// MECHANISM is framework, raw, surface or pool; LIVE counts the payload rows on axis 1; every FILE holds one input's
// elements, dense, in the machine's byte order. Exit code 0 says that every check passed.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kvbacking/copy.h"
#include "kvbacking/host.h"
#include "kvbacking/model.h"
#include "kvbacking/session.h"

namespace {

using nlohmann::json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json to_json(const kvbacking::OutputEvidence& e) {
  return {{"name", e.name},
          {"mechanism", e.mechanism},
          {"proposed", e.proposed},
          {"allowed", or_null(e.allowed)},
          {"accepted", or_null(e.accepted)},
          {"same_object", or_null(e.same_object)},
          {"same_storage", or_null(e.same_storage)},
          {"in_range", or_null(e.in_range)},
          {"shape", e.shape},
          {"strides", e.strides},
          {"dtype", e.dtype},
          {"layout_ok", or_null(e.layout_ok)},
          {"direct_write", e.direct_write},
          {"bytes_copied", e.bytes_copied},
          {"digest", or_null(e.digest)},
          {"finite", or_null(e.finite)},
          {"non_zero", or_null(e.non_zero)},
          {"min", or_null(e.min)},
          {"max", or_null(e.max)},
          {"tail_zero", or_null(e.tail_zero)},
          {"canaries_intact", or_null(e.canaries_intact)},
          {"row_gaps_touched", or_null(e.row_gaps_touched)},
          {"complete", or_null(e.complete)},
          {"fresh", or_null(e.fresh)},
          {"distinct", or_null(e.distinct)},
          {"checked", e.checked}};
}

kvbacking::Mechanism mechanism_named(const std::string& name) {
  using enum kvbacking::Mechanism;
  for (const auto mechanism : {kFramework, kRaw, kSurface, kPool}) {
    if (name == kvbacking::mechanism_name(mechanism)) return mechanism;
  }
  throw std::invalid_argument("no mechanism is named " + name);
}

// The session copies inputs before the framework runs: these bytes need to live during predict() only.
std::vector<char> read_input(const std::string& path, const kvbacking::Layout& layout) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (bytes.size() == layout.byte_count()) return bytes;
  throw std::invalid_argument(path + " holds " + std::to_string(bytes.size()) + " bytes, expected " +
                              std::to_string(layout.byte_count()) + " of " + layout.describe());
}

// A view never copies and keeps its set busy; here its live rows are read as float32, whatever its strides are.
double live_sum(const kvbacking::View& view, std::int64_t live) {
  kvbacking::Layout rows = view.layout();
  rows.shape.at(1) = live;
  const auto dense = kvbacking::Layout::dense(kvbacking::DType::kFloat32, rows.shape);
  std::vector<float> values(static_cast<std::size_t>(dense.element_count()));
  kvbacking::copy_elements(view.data(), rows, values.data(), dense);
  double sum = 0.0;
  for (const float value : values) sum += value;
  return sum;
}

json run(const std::string& package, const std::string& mechanism, std::int64_t live,
         const std::map<std::string, std::string>& files) {
  const auto model = kvbacking::Model::load(package, {});
  kvbacking::Contract contract;
  contract.live = live;
  contract.axis = 1;
  for (const auto& output : model->outputs())
    contract.outputs.push_back({output.name, output.dtype.value(), output.shape});
  for (const auto& input : model->inputs()) contract.sensitive_to.push_back(input.name);

  std::vector<std::vector<char>> storage;
  std::vector<kvbacking::InputArray> inputs;
  for (const auto& input : model->inputs()) {
    const auto layout = kvbacking::Layout::dense(input.dtype.value(), input.shape);
    storage.push_back(read_input(files.at(input.name), layout));
    inputs.push_back({input.name, storage.back().data(), layout});
  }

  kvbacking::SessionOptions options;
  options.mechanism = mechanism_named(mechanism);
  options.verify = kvbacking::Verify::kFull;  // every byte is scanned and compared with a second, plain prediction
  const auto session = kvbacking::Session::create(model, contract, options);
  const auto prediction = session->predict(inputs);

  json document = {{"runtime", kvbacking::host_info().kind}, {"path", kvbacking::path_name(prediction->path())}};
  for (const auto& evidence : prediction->evidence()) {
    document["evidence"][evidence.name] = to_json(evidence);
    document["live_sum"][evidence.name] = live_sum(*prediction->view(evidence.name), prediction->live());
  }
  return document;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc < 4) throw std::invalid_argument("usage: embed_cpp PACKAGE MECHANISM LIVE INPUT=FILE...");
    std::map<std::string, std::string> files;
    for (const std::string argument : std::vector<std::string>(argv + 4, argv + argc)) {
      const auto equals = argument.find('=');
      if (equals == std::string::npos) throw std::invalid_argument("expected INPUT=FILE, got " + argument);
      files.emplace(argument.substr(0, equals), argument.substr(equals + 1));
    }
    std::cout << run(argv[1], argv[2], std::stoll(argv[3]), files).dump(2) << '\n';
    return 0;
  } catch (const kvbacking::Error& error) {  // every failed check is in failures()
    std::cerr << error.message() << '\n';
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return 1;
}
