#include "kvbacking/host.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "bind/reaper.h"

namespace nb = nanobind;

namespace kvbacking::bind {

void init_host(nb::module_& m) {
  nb::class_<HostInfo>(m, "HostInfo")
      .def_ro("kind", &HostInfo::kind)
      .def_ro("runtime_version", &HostInfo::runtime_version)
      .def_ro("os", &HostInfo::os)
      .def_ro("os_build", &HostInfo::os_build)
      .def_ro("chip", &HostInfo::chip)
      .def_ro("deployment_target", &HostInfo::deployment_target)
      .def_ro("build_sdk", &HostInfo::build_sdk)
      .def_ro("python_sdk", &HostInfo::python_sdk)
      .def_ro("page_size", &HostInfo::page_size)
      .def_ro("surface_max_width", &HostInfo::surface_max_width)
      .def_ro("surface_max_height", &HostInfo::surface_max_height)
      .def_ro("surface_max_bytes_per_row", &HostInfo::surface_max_bytes_per_row)
      .def_ro("surface_max_alloc_size", &HostInfo::surface_max_alloc_size)
      .def_ro("supports_state", &HostInfo::supports_state)
      .def_ro("supports_functions", &HostInfo::supports_functions)
      .def_ro("supports_compute_plan", &HostInfo::supports_compute_plan);
  m.def("host_info", &host_info, "What this process runs on.");
  m.def("memory_footprint_byte_count", &memory_footprint_byte_count,
        "Physical footprint (macOS) or resident set (Linux) of this process, in bytes.");
  m.def(
      "live_counts",
      [] {
        drain_reaper();
        return live_counts();
      },
      "Native objects alive now, by kind.");
  m.def("created_counts", &created_counts,
        "Native memory and wrappers made since the process began: allocation, allocated_bytes, array, surface.");
  m.def("require_same_process", &require_same_process, "Raises UnsupportedPlatformError in a child after fork().");
}

}  // namespace kvbacking::bind
