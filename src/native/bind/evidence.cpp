#include "kvbacking/evidence.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.h"

namespace nb = nanobind;

namespace kvbacking::bind {

void init_evidence(nb::module_& m) {
  nb::class_<InputEvidence>(m, "InputEvidence")
      .def_ro("name", &InputEvidence::name)
      .def_ro("path", &InputEvidence::path)
      .def_ro("source_address", &InputEvidence::source_address)
      .def_ro("array_address", &InputEvidence::array_address)
      .def_ro("surface_id", &InputEvidence::surface_id)
      .def_ro("same_storage", &InputEvidence::same_storage)
      .def_ro("unchanged", &InputEvidence::unchanged)
      .def_ro("bytes_copied", &InputEvidence::bytes_copied)
      .def_ro("reason", &InputEvidence::reason);
  nb::class_<OutputEvidence>(m, "OutputEvidence")
      .def_ro("name", &OutputEvidence::name)
      .def_ro("mechanism", &OutputEvidence::mechanism)
      .def_ro("proposed", &OutputEvidence::proposed)
      .def_ro("allowed", &OutputEvidence::allowed)
      .def_ro("accepted", &OutputEvidence::accepted)
      .def_ro("same_object", &OutputEvidence::same_object)
      .def_ro("same_storage", &OutputEvidence::same_storage)
      .def_ro("in_range", &OutputEvidence::in_range)
      .def_ro("shape", &OutputEvidence::shape)
      .def_ro("strides", &OutputEvidence::strides)
      .def_ro("dtype", &OutputEvidence::dtype)
      .def_ro("layout_ok", &OutputEvidence::layout_ok)
      .def_ro("direct_write", &OutputEvidence::direct_write)
      .def_ro("bytes_copied", &OutputEvidence::bytes_copied)
      .def_ro("digest", &OutputEvidence::digest)
      .def_ro("finite", &OutputEvidence::finite)
      .def_ro("non_zero", &OutputEvidence::non_zero)
      .def_ro("min", &OutputEvidence::min)
      .def_ro("max", &OutputEvidence::max)
      .def_ro("tail_zero", &OutputEvidence::tail_zero)
      .def_ro("canaries_intact", &OutputEvidence::canaries_intact)
      .def_ro("row_gaps_touched", &OutputEvidence::row_gaps_touched)
      .def_ro("complete", &OutputEvidence::complete)
      .def_ro("fresh", &OutputEvidence::fresh)
      .def_ro("distinct", &OutputEvidence::distinct)
      .def_ro("checked", &OutputEvidence::checked);
}

}  // namespace kvbacking::bind
