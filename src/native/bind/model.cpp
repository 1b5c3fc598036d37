#include "kvbacking/model.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"
#include "bind/inputs.h"
#include "bind/reaper.h"
#include "kvbacking/host.h"
#include "kvbacking/session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {
namespace {

nb::dict predict(const Model& model, const nb::dict& inputs, const std::shared_ptr<State>& state) {
  drain_reaper();
  const Inputs arrays(inputs);
  std::vector<OwnedOutput> outputs;
  {
    const GilReleased release;
    require_same_process();
    outputs = predict_once(model, arrays.native(), state);
  }
  nb::dict result;
  for (OwnedOutput& output : outputs) {
    const std::string name = output.name;
    result[name.c_str()] = numpy_owned(std::move(output));
  }
  return result;
}

}  // namespace

void init_model(nb::module_& m) {
  nb::enum_<ComputeUnits>(m, "ComputeUnits")
      .value("cpu_only", ComputeUnits::kCpuOnly)
      .value("cpu_and_gpu", ComputeUnits::kCpuAndGpu)
      .value("all", ComputeUnits::kAll)
      .value("cpu_and_ne", ComputeUnits::kCpuAndNeuralEngine);
  nb::class_<TensorSpec>(m, "TensorSpec")
      .def_ro("name", &TensorSpec::name)
      .def_ro("kind", &TensorSpec::kind_name)
      .def_ro("shape", &TensorSpec::shape)
      .def_prop_ro(
          "dtype",
          [](const TensorSpec& self) -> std::optional<std::string> {
            return self.dtype ? std::optional<std::string>(dtype_name(*self.dtype)) : std::nullopt;
          },
          "NumPy's name; None where the framework's type is not one of ours.")
      .def_ro("flexible", &TensorSpec::flexible)
      .def_ro("optional", &TensorSpec::optional)
      .def_ro("enumerated_shapes", &TensorSpec::enumerated_shapes)
      .def_ro("ranges", &TensorSpec::ranges);
  nb::class_<Model>(m, "Model")
      .def_static(
          "load",
          [](const std::string& path, ComputeUnits compute_units, std::optional<std::string> function,
             std::string cache_dir, std::string cache_key) {
            const GilReleased release;
            require_same_process();
            return Model::load(path, {compute_units, std::move(function), std::move(cache_dir), std::move(cache_key)});
          },
          "path"_a, nb::kw_only(), "compute_units"_a = ComputeUnits::kAll, "function"_a = nb::none(),
          "cache_dir"_a = "", "cache_key"_a = "",
          "Compiles (into `<cache_dir>/<cache_key>.mlmodelc` when given) and loads. Raises ModelError.")
      .def_prop_ro("inputs", &Model::inputs)
      .def_prop_ro("outputs", &Model::outputs)
      .def_prop_ro("states", &Model::states)
      .def_prop_ro("compiled_path", &Model::compiled_path)
      .def_prop_ro("compute_units", &Model::compute_units)
      .def("release_idle_inputs", &Model::release_idle_inputs, nb::call_guard<GilReleased>(),
           "Frees the input buffers that nothing holds now.")
      .def("functions", &Model::functions, nb::call_guard<GilReleased>(),
           "Names of the functions of a multi-function package; empty where they cannot be listed.")
      .def("predict", &predict, "inputs"_a, "state"_a = nb::none(),
           nb::sig("def predict(self, inputs: dict[str, numpy.ndarray | OwnedSurface], state: State | None = None) -> "
                   "dict[str, numpy.ndarray]"),
           "One prediction without backings; every output is copied into memory of its own.");
}

}  // namespace kvbacking::bind
