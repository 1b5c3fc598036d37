// Where Python arrays and native layouts meet, and nowhere else.
// Threads: with the GIL. Ownership: a ReadOnlyArray keeps its exporter alive; numpy_view() hands `owner` to NumPy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "kvbacking/layout.h"
#include "kvbacking/state.h"

namespace kvbacking::bind {

using ReadOnlyArray = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;
using WritableArray = nanobind::ndarray<nanobind::device::cpu>;

// NumPy counts strides in bytes; the DLPack description that nanobind makes of every array, and our Layout, count
// elements. Throws Error(kInvalidArgument) for an element type that is not one of ours.
Layout layout_of(const ReadOnlyArray& array);
Layout layout_of(const WritableArray& array);

// A read-only NumPy array over memory that `owner` keeps alive. Never copies.
nanobind::object numpy_view(const void* data, const Layout& layout, const nanobind::capsule& owner);
// The same, writable: for memory that nobody proposes to a framework.
nanobind::object numpy_array(void* data, const Layout& layout, const nanobind::capsule& owner);

// A writable NumPy array that owns `output`'s memory. Never copies.
nanobind::object numpy_owned(OwnedOutput output);

}  // namespace kvbacking::bind
