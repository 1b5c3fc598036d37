#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <vector>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"
#include "kvbacking/host.h"
#include "kvbacking/owned_surface.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {
namespace {

std::shared_ptr<OwnedSurface> create(const std::string& dtype, const std::vector<std::int64_t>& shape, bool zeroed) {
  const GilReleased release;
  return OwnedSurface::create(dtype_from_name(dtype), shape, zeroed);
}

// The capsule owns the mapping, which keeps surface and lock: nothing points back.
nb::object map(const OwnedSurface& surface, bool writable) {
  std::unique_ptr<OwnedSurface::Mapping> mapping;
  {
    const GilReleased release;
    mapping = surface.map(writable);
  }
  void* const data = mapping->data();
  const nb::capsule owner(mapping.get(), [](void* p) noexcept { delete static_cast<OwnedSurface::Mapping*>(p); });
  mapping.release();
  return writable ? numpy_array(data, surface.layout(), owner) : numpy_view(data, surface.layout(), owner);
}

}  // namespace

void init_surface(nb::module_& m) {
  m.def(
      "surface_refusal",
      [](const std::string& dtype, const std::vector<std::int64_t>& shape) {
        return surface_refusal(dtype_from_name(dtype), shape);
      },
      "dtype"_a, "shape"_a, "Why this system allows no surface for such an array, or None.");
  nb::class_<OwnedSurface>(m, "OwnedSurface", "A surface that its user fills.")
      .def_static("create", &create, "dtype"_a, "shape"_a, "zeroed"_a = true,
                  "Raises ContractError with the reason when this system allows no such surface, AllocationError.")
      .def_prop_ro("shape", [](const OwnedSurface& self) { return self.layout().shape; })
      .def_prop_ro("dtype", [](const OwnedSurface& self) { return std::string(dtype_name(self.layout().dtype)); })
      .def_prop_ro("id", &OwnedSurface::id)
      .def_prop_ro("bytes_per_row", &OwnedSurface::bytes_per_row)
      .def_prop_ro("byte_count", &OwnedSurface::byte_count)
      .def_prop_ro("input_name", &OwnedSurface::input_name, "The input that it last was; empty: never.")
      .def("map", &map, "writable"_a, nb::sig("def map(self, writable: bool) -> numpy.ndarray"),
           "An array over the memory, which stays locked while it lives. Never copies. Raises BackingInUseError.");
}

}  // namespace kvbacking::bind
