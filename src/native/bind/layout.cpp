#include "kvbacking/layout.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bind/bind.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_layout(nb::module_& m) {
  m.def(
      "element_size", [](const std::string& dtype) { return element_size(dtype_from_name(dtype)); }, "dtype"_a,
      "Bytes of one element of NumPy's `dtype` name. Raises ValueError for an element type that is not supported.");
  nb::class_<Layout>(m, "Layout", "Element type, shape and strides in elements; owns no memory.")
      .def_static(
          "dense",
          [](const std::string& dtype, std::vector<std::int64_t> shape) {
            return Layout::dense(dtype_from_name(dtype), std::move(shape));
          },
          "dtype"_a, "shape"_a, "C-contiguous.")
      .def_static(
          "padded_rows",
          [](const std::string& dtype, std::vector<std::int64_t> shape, std::int64_t row_element_stride) {
            return Layout::padded_rows(dtype_from_name(dtype), std::move(shape), row_element_stride);
          },
          "dtype"_a, "shape"_a, "row_element_stride"_a, "Dense rows, `row_element_stride` elements apart.")
      .def_static(
          "strided",
          [](const std::string& dtype, std::vector<std::int64_t> shape, std::vector<std::int64_t> element_strides) {
            return Layout::strided(dtype_from_name(dtype), std::move(shape), std::move(element_strides));
          },
          "dtype"_a, "shape"_a, "element_strides"_a, "Any strides, in elements.")
      .def_prop_ro(
          "dtype", [](const Layout& self) { return dtype_name(self.dtype); }, "NumPy's name.")
      .def_ro("shape", &Layout::shape)
      .def_ro("element_strides", &Layout::element_strides)
      .def("element_count", &Layout::element_count, "Product of the shape.")
      .def("byte_count", &Layout::byte_count, "Logical bytes, padding not counted.")
      .def("span_byte_count", &Layout::span_byte_count, "Bytes from the first to one past the last element.")
      .def("row_length", &Layout::row_length, "Elements of the last dimension; 1 for a scalar.")
      .def("row_count", &Layout::row_count, "Product of the other dimensions.")
      .def("is_dense", &Layout::is_dense, "Whether it is C-contiguous.")
      .def("is_row_padded", &Layout::is_row_padded, "Whether rows are dense and a constant stride apart.")
      .def("overlaps_itself", &Layout::overlaps_itself, "Whether two indices may share an element (conservative).")
      .def("__repr__", &Layout::describe);
}

}  // namespace kvbacking::bind
