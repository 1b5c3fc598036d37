// libFuzzer over the package reader, program creation and (when the program is small) one run.
// Threads: one.
// Ownership: everything dies with the iteration.
//
// An input is a model.mlmodel and a weight.bin in one piece: u32 byte count of the model, the model, the weights.
#include <cstdint>
#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "mil/package/package.h"
#include "mil/program/program.h"

namespace {

using namespace coremlsim::mil;

constexpr std::int64_t kMaxArenaBytes = 1 << 20;
constexpr double kMaxCost = 1e6;

TensorView zeros(const FeatureDescription& feature, DataType dtype, std::vector<std::vector<std::uint8_t>>& memory) {
  TensorView view{dtype, feature.shape, std::vector<std::int64_t>(feature.shape.size()), nullptr};
  std::int64_t stride = 1;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    view.strides[i] = stride;
    stride *= view.shape[i];
  }
  memory.emplace_back(static_cast<std::size_t>(stride) * byte_width(dtype) + 1);
  view.data = memory.back().data();
  return view;
}

void run_when_small(const std::shared_ptr<const ProgramImpl>& program) {
  InputShapes shapes;
  for (std::size_t i = 0; i < program->graph().inputs.size(); ++i) shapes.push_back(program->default_shape(i));
  const auto plan = program->plan_for(shapes);
  if (!plan || plan->arena_bytes > kMaxArenaBytes) return;
  if (!(std::accumulate(plan->node_cost.begin(), plan->node_cost.end(), 0.0) < kMaxCost)) return;
  std::vector<std::vector<std::uint8_t>> memory;
  std::map<std::string, TensorView> inputs, states;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const GraphValue& value = program->graph().values[static_cast<std::size_t>(program->graph().inputs[i])];
    FeatureDescription feature;
    feature.shape = value.origin == Origin::kState ? value.type.tensor.dims : shapes[i];
    std::int64_t count = element_count(feature.shape, "input");
    if (count > kMaxArenaBytes) return;
    const DataType dtype = public_type(value.type.tensor.dtype);
    if (byte_width(dtype) == 0) return;
    (value.origin == Origin::kState ? states : inputs)[std::string(value.name)] = zeros(feature, dtype, memory);
  }
  (void)program->new_run()->execute(inputs, states);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint32_t model_bytes = 0;
  if (size < sizeof model_bytes) return 0;
  std::memcpy(&model_bytes, data, sizeof model_bytes);
  data += sizeof model_bytes;
  size -= sizeof model_bytes;
  if (model_bytes > size) return 0;
  const auto model = MappedFile::from_bytes("model.mlmodel", {data, data + model_bytes});
  const auto weights = MappedFile::from_bytes("weight.bin", {data + model_bytes, data + size});
  try {
    const auto package = std::make_shared<const PackageImpl>(model, weights);
    for (const FunctionDescription& function : package->functions()) {
      const ProgramOptions options{.function = function.name, .numerics = Numerics::kFloat16, .threads = 1};
      run_when_small(std::make_shared<const ProgramImpl>(package, options));
    }
  } catch (const ModelError&) {
  }
  return 0;
}
