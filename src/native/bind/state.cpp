#include "kvbacking/state.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"
#include "bind/inputs.h"
#include "kvbacking/host.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {
namespace {

nb::object read(const State& state, const std::string& name) {
  OwnedOutput output;
  {
    const GilReleased release;
    require_same_process();
    output = state.read(name);
  }
  return numpy_owned(std::move(output));
}

void write(State& state, const std::string& name, const ReadOnlyArray& array, const std::vector<std::int64_t>& origin) {
  const Layout layout = layout_of(array);
  const GilReleased release;
  require_same_process();
  state.write(name, array.data(), layout, origin);
}

nb::dict snapshot(const State& state) {
  std::vector<OwnedOutput> outputs;
  {
    const GilReleased release;
    require_same_process();
    outputs = state.snapshot();
  }
  nb::dict result;
  for (OwnedOutput& output : outputs) {
    const std::string name = output.name;
    result[name.c_str()] = numpy_owned(std::move(output));
  }
  return result;
}

void restore(State& state, const nb::dict& arrays) {
  const Inputs inputs(arrays);
  std::vector<OwnedOutput> outputs;
  for (const InputArray& input : inputs.native()) {
    // Borrowed for this call: restore() only reads.
    outputs.push_back({input.name, input.layout, {std::shared_ptr<void>(), const_cast<void*>(input.data)}});
  }
  const GilReleased release;
  require_same_process();
  state.restore(outputs);
}

}  // namespace

void init_state(nb::module_& m) {
  nb::class_<State>(m, "State", "A stateful model's buffers; one call at a time.")
      .def_static("create", &State::create, "model"_a, nb::call_guard<GilReleased>(),
                  "New buffers, all zero. Raises UnsupportedPlatformError before macOS 15.")
      .def("names", &State::names, "Sorted names of the states.")
      .def("read", &read, "name"_a, nb::sig("def read(self, name: str) -> numpy.ndarray"), "A copy of one buffer.")
      .def("write", &write, "name"_a, "array"_a, "origin"_a = std::vector<std::int64_t>(),
           nb::sig("def write(self, name: str, array: numpy.ndarray, origin: collections.abc.Sequence[int] = []) -> "
                   "None"),
           "Copies `array` (any strides) into one buffer: its whole shape, or the box that begins at `origin`.")
      .def("zero", &State::zero, nb::call_guard<GilReleased>(), "Zeroes every buffer.")
      .def("snapshot", &snapshot, nb::sig("def snapshot(self) -> dict[str, numpy.ndarray]"), "Copies of every buffer.")
      .def("restore", &restore, "arrays"_a, nb::sig("def restore(self, arrays: dict[str, numpy.ndarray]) -> None"),
           "Copies a snapshot back.");
}

}  // namespace kvbacking::bind
