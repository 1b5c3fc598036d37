#include "kvbacking/scan.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_scan(nb::module_& m) {
  nb::class_<ParityResult>(m, "ParityResult")
      .def_ro("max_abs_error", &ParityResult::max_abs_error)
      .def_ro("max_abs_index", &ParityResult::max_abs_index)
      .def_ro("max_rel_error", &ParityResult::max_rel_error)
      .def_ro("max_rel_index", &ParityResult::max_rel_index)
      .def_ro("over_tolerance_count", &ParityResult::over_tolerance_count)
      .def_ro("first_over_index", &ParityResult::first_over_index)
      .def_ro("mean_abs_error", &ParityResult::mean_abs_error)
      .def_ro("cosine", &ParityResult::cosine);
  nb::class_<ScanResult>(m, "ScanResult")
      .def_ro("element_count", &ScanResult::element_count)
      .def_ro("nan_count", &ScanResult::nan_count)
      .def_ro("first_nan_index", &ScanResult::first_nan_index)
      .def_ro("inf_count", &ScanResult::inf_count)
      .def_ro("first_inf_index", &ScanResult::first_inf_index)
      .def_ro("live_nan_count", &ScanResult::live_nan_count)
      .def_ro("live_inf_count", &ScanResult::live_inf_count)
      .def_ro("live_all_zero", &ScanResult::live_all_zero)
      .def_ro("min", &ScanResult::min)
      .def_ro("max", &ScanResult::max)
      .def_ro("tail_dirty_count", &ScanResult::tail_dirty_count)
      .def_ro("first_tail_dirty_index", &ScanResult::first_tail_dirty_index)
      .def_ro("residue_count", &ScanResult::residue_count)
      .def_ro("first_residue_index", &ScanResult::first_residue_index)
      .def_ro("parity", &ScanResult::parity)
      .def_prop_ro("digest", &ScanResult::digest_hex);
  m.def(
      "scan",
      [](const ReadOnlyArray& array, std::optional<std::int64_t> live, std::int64_t axis, int threads,
         std::optional<std::uint64_t> fill_pattern, std::optional<ReadOnlyArray> reference, double max_abs,
         double max_rel) {
        const Layout layout = layout_of(array);
        ScanOptions options;
        options.live = live;
        options.axis = axis;
        options.threads = threads;
        options.fill_pattern = fill_pattern;
        options.max_abs = max_abs;
        options.max_rel = max_rel;
        Layout reference_layout;
        if (reference) {
          reference_layout = layout_of(*reference);
          options.reference = reference->data();
          options.reference_layout = &reference_layout;
        }
        const GilReleased release;
        return scan(array.data(), layout, options);
      },
      "array"_a, nb::kw_only(), "live"_a = nb::none(), "axis"_a = 0, "threads"_a = 1, "fill_pattern"_a = nb::none(),
      "reference"_a = nb::none(), "max_abs"_a = 0.0, "max_rel"_a = 0.0,
      nb::sig(
          "def scan(array: numpy.ndarray, *, live: int | None = None, axis: int = 0, threads: int = 1, fill_pattern: "
          "int | None = None, reference: numpy.ndarray | None = None, max_abs: float = 0.0, max_rel: float = 0.0) -> "
          "ScanResult"),
      "One pass over every logical byte of `array`. Never copies it; the GIL is released. Raises ValueError.");
}

}  // namespace kvbacking::bind
