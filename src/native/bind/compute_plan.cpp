#include "kvbacking/compute_plan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"
#include "bind/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_compute_plan(nb::module_& m) {
  nb::class_<PlannedOperation>(m, "PlannedOperation")
      .def_ro("function", &PlannedOperation::function)
      .def_ro("op", &PlannedOperation::op)
      .def_ro("outputs", &PlannedOperation::outputs)
      .def_ro("preferred_device", &PlannedOperation::preferred_device)
      .def_ro("supported_devices", &PlannedOperation::supported_devices)
      .def_ro("cost", &PlannedOperation::cost);
  m.def("compute_plan", &compute_plan, "model"_a, "timeout_s"_a = 120.0, nb::call_guard<GilReleased>(),
        "Where Core ML expects to run each operation. Raises UnsupportedPlatformError, ModelError.");
}

}  // namespace kvbacking::bind
