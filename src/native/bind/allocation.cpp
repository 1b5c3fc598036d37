#include "kvbacking/allocation.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_allocation(nb::module_& m) {
  nb::class_<Allocation>(m, "Allocation", "Page-aligned memory with a canary page before and canary bytes after it.")
      .def_static(
          "create",
          [](std::size_t byte_count, bool from_system) {
            const GilReleased release;
            return Allocation::create(byte_count,
                                      from_system ? Allocation::Origin::kSystem : Allocation::Origin::kHeap);
          },
          "byte_count"_a, "from_system"_a = false,
          "A payload of `byte_count` bytes, contents undefined; `from_system`: pages that go back at once. Raises "
          "AllocationError.")
      .def_prop_ro("address", [](const Allocation& self) { return reinterpret_cast<std::uintptr_t>(self.payload()); })
      .def_prop_ro("byte_count", &Allocation::byte_count)
      .def("arm_canaries", &Allocation::arm_canaries, "seed"_a, "Fills the canaries with a pattern made of `seed`.")
      .def(
          "check_canaries",
          [](const Allocation& self) -> std::optional<std::tuple<std::int64_t, int, int>> {
            if (const auto damage = self.check_canaries()) {
              return std::tuple{damage->offset, int{damage->expected}, int{damage->actual}};
            }
            return std::nullopt;
          },
          "None, or (offset from the payload, expected byte, actual byte) of the first damage.")
      .def(
          "bytes",
          [](const std::shared_ptr<Allocation>& self) {
            auto keep = std::make_unique<std::shared_ptr<Allocation>>(self);
            nb::capsule owner(keep.get(),
                              [](void* p) noexcept { delete static_cast<std::shared_ptr<Allocation>*>(p); });
            keep.release();
            return numpy_array(self->payload(),
                               Layout::dense(DType::kInt8, {static_cast<std::int64_t>(self->byte_count())}), owner);
          },
          nb::sig("def bytes(self) -> numpy.typing.NDArray[numpy.int8]"),
          "A writable int8 array over the payload that keeps it alive. Never copies.")
      .def_static("granularity", &Allocation::granularity, "max(page size, 16384) bytes.")
      .def_static("live_count", &Allocation::live_count, "Allocations alive now.")
      .def_static("fail_nth_create", &Allocation::fail_nth_create, "n"_a,
                  "Test hook: the nth next create() fails as an exhausted system would (0: never).");
}

}  // namespace kvbacking::bind
