// kvbacking._simulator: the switches and counters of the simulated framework. Only translates.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "framework/control.h"
#include "framework/faults.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

const char* target_name(coremlsim::Target target) {
  switch (target) {
    case coremlsim::Target::kOutput:
      return "output";
    case coremlsim::Target::kInput:
      return "input";
    case coremlsim::Target::kAllocation:
      return "allocation";
    case coremlsim::Target::kNone:
      return "none";
  }
  return "none";
}

const char* parameter_name(coremlsim::Parameter parameter) {
  switch (parameter) {
    case coremlsim::Parameter::kNone:
      return "none";
    case coremlsim::Parameter::kChoice:
      return "choice";
    case coremlsim::Parameter::kMilliseconds:
      return "milliseconds";
    case coremlsim::Parameter::kNth:
      return "nth";
  }
  return "none";
}

using FaultRow = std::tuple<std::string, std::string, std::string, std::vector<std::string>, std::string, std::string>;

std::vector<FaultRow> fault_rows() {
  std::vector<FaultRow> rows;
  for (const coremlsim::FaultInfo& info : coremlsim::fault_table()) {
    const std::string fallback = info.choices.empty() ? info.fallback : info.choices.front();
    rows.emplace_back(info.name, target_name(info.target), parameter_name(info.parameter), info.choices, fallback,
                      info.summary);
  }
  return rows;
}

}  // namespace

NB_MODULE(_simulator, m) {
  m.doc() = "Switches of the simulated Core ML. Private: use kvbacking.simulator.";
  m.attr("version") = coremlsim::kVersion;
  m.def("fault_table", fault_rows, "Every fault: (name, target, parameter, choices, default, summary).");
  m.def("set_faults", &coremlsim::set_faults, "json"_a, "Replaces every fault. Raises ValueError naming the key.");
  m.def("fired_counts", &coremlsim::fired_counts, "How often each fault fired since set_faults.");
  m.def("configure", &coremlsim::configure, "json"_a, "Changes the options named. Raises ValueError naming the key.");
  m.def("options", &coremlsim::options_json, "Every option and its value, as JSON text.");
  m.def("reset_options", &coremlsim::reset_options, "Options as in a new process without environment.");
  m.def("live_counts", &coremlsim::live_counts, "Native objects of the framework alive now.");
  m.def("violations", &coremlsim::violations, "How often the client broke each rule of the documented contract.");
  m.def("reset_violations", &coremlsim::reset_violations, "Counts violations from zero again.");
  m.def("drain", &coremlsim::drain_releases, "timeout_ms"_a, nb::call_guard<nb::gil_scoped_release>(),
        "Runs what waits on the release thread now; False when it did not finish in time.");
}
