#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"
#include "bind/inputs.h"
#include "coreml/autorelease.h"
#include "kvbacking/conditions.h"
#include "kvbacking/error.h"
#include "kvbacking/postprocess.h"
#include "kvbacking/signpost.h"
#include "kvbacking/surface_probe.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_measure(nb::module_& m) {
  nb::class_<HostConditions>(m, "HostConditions")
      .def_ro("thermal", &HostConditions::thermal)
      .def_ro("low_power", &HostConditions::low_power)
      .def_ro("busy_ticks", &HostConditions::busy_ticks)
      .def_ro("total_ticks", &HostConditions::total_ticks);
  m.def("host_conditions", &host_conditions,
        "Heat, low power mode and CPU time; None and 0 where the system does not tell.");

  nb::class_<SignpostEvent>(m, "SignpostEvent")
      .def_ro("stage", &SignpostEvent::stage)
      .def_ro("begins", &SignpostEvent::begins)
      .def_ro("interval", &SignpostEvent::interval)
      .def_ro("at_ns", &SignpostEvent::at_ns);
  m.def("record_signposts", &record_signposts, "on"_a, "Starts or stops recording the stage marks.");
  m.def("take_signposts", &take_signposts, "The marks recorded since the last call, in order.");

  nb::class_<SurfaceProbeStep>(m, "SurfaceProbeStep")
      .def_ro("step", &SurfaceProbeStep::step)
      .def_ro("outcome", &SurfaceProbeStep::outcome)
      .def_ro("domain", &SurfaceProbeStep::domain)
      .def_ro("code", &SurfaceProbeStep::code)
      .def_ro("message", &SurfaceProbeStep::message)
      .def_ro("bytes_per_row", &SurfaceProbeStep::bytes_per_row);
  m.def(
      "probe_surface",
      [](const std::shared_ptr<Model>& model, const nb::dict& inputs, const std::string& output) {
        const Inputs arrays(inputs);
        const GilReleased release;
        return probe_surface(model, arrays.native(), output);
      },
      "model"_a, "inputs"_a, "output"_a,
      nb::sig("def probe_surface(model: Model, inputs: dict[str, object], output: str) -> list[SurfaceProbeStep]"),
      "Which treatment of a surface's array makes the framework refuse it as the backing of `output`. Raises "
      "ContractError.");

  m.def("hold_autorelease_pool", &hold_autorelease_pool, "hold"_a,
        "Makes this thread keep one autorelease pool over all its calls, or drains it. For one experiment.");
  m.def("half_conversion_engine", &half_conversion_engine, "vImage or Highway.");
  m.def(
      "convert_half_to_float",
      [](const ReadOnlyArray& source, const WritableArray& destination) {
        const Layout from = layout_of(source);
        const Layout to = layout_of(destination);
        if (from.dtype != DType::kFloat16 || to.dtype != DType::kFloat32 || from.shape != to.shape ||
            !from.is_dense() || !to.is_dense()) {
          throw Error(ErrorCode::kInvalidArgument,
                      "[convert_half_to_float] expected a dense float16 and a dense float32 array of one shape, got " +
                          from.describe() + " and " + to.describe());
        }
        const auto columns = static_cast<std::size_t>(from.row_length());
        const GilReleased release;
        convert_half_to_float(source.data(), static_cast<float*>(destination.data()),
                              static_cast<std::size_t>(from.row_count()), columns);
      },
      "source"_a, "destination"_a,
      nb::sig("def convert_half_to_float(source: numpy.ndarray, destination: numpy.ndarray) -> None"),
      "Dense float16 to dense float32 of the same shape, by half_conversion_engine(). Raises ValueError.");
}

}  // namespace kvbacking::bind
