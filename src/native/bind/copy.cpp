#include "kvbacking/copy.h"

#include <nanobind/nanobind.h>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_copy(nb::module_& m) {
  m.def(
      "copy_elements",
      [](const ReadOnlyArray& source, const WritableArray& destination, bool bypass_caches) {
        const Layout source_layout = layout_of(source);
        const Layout destination_layout = layout_of(destination);
        const GilReleased release;
        copy_elements(source.data(), source_layout, destination.data(), destination_layout,
                      bypass_caches ? Caching::kBypass : Caching::kUse);
      },
      "source"_a, "destination"_a, "bypass_caches"_a = false,
      nb::sig("def copy_elements(source: numpy.ndarray, destination: numpy.ndarray, bypass_caches: bool = False) -> "
              "None"),
      "Copies every element; equal dtypes or fp16/fp32 either way; the two may overlap. Raises ValueError on different "
      "shapes, another pair of dtypes or a destination that overlaps itself.");
}

}  // namespace kvbacking::bind
