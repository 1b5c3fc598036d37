#include "kvbacking/contract.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>

#include "bind/bind.h"
#include "bind/gil.h"
#include "kvbacking/session.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {
namespace {

using OutputTuple = std::tuple<std::string, std::string, std::vector<std::int64_t>>;

Contract make_contract(const std::vector<OutputTuple>& outputs, std::int64_t live, std::int64_t axis, bool tail_zero,
                       double max_abs, double max_rel, std::vector<std::string> unbacked,
                       std::vector<std::string> sensitive_to, bool allow_all_zero) {
  Contract contract;
  for (const auto& [name, dtype, shape] : outputs) {
    contract.outputs.push_back({name, dtype_from_name(dtype), shape});
  }
  contract.live = live;
  contract.axis = axis;
  contract.tail = tail_zero ? TailRule::kZero : TailRule::kAny;
  contract.max_abs = max_abs;
  contract.max_rel = max_rel;
  contract.unbacked = std::move(unbacked);
  contract.sensitive_to = std::move(sensitive_to);
  contract.allow_all_zero = allow_all_zero;
  return contract;
}

}  // namespace

void init_contract(nb::module_& m) {
  nb::class_<CheckFailure>(m, "CheckFailure")
      .def_ro("output", &CheckFailure::output)
      .def_ro("check", &CheckFailure::check)
      .def_ro("expected", &CheckFailure::expected)
      .def_ro("actual", &CheckFailure::actual);
  nb::class_<Contract>(m, "Contract")
      .def(
          "__init__",
          [](Contract* self, const std::vector<OutputTuple>& outputs, std::int64_t live, std::int64_t axis,
             bool tail_zero, double max_abs, double max_rel, std::vector<std::string> unbacked,
             std::vector<std::string> sensitive_to, bool allow_all_zero) {
            new (self) Contract(make_contract(outputs, live, axis, tail_zero, max_abs, max_rel, std::move(unbacked),
                                              std::move(sensitive_to), allow_all_zero));
          },
          nb::kw_only(), "outputs"_a, "live"_a, "axis"_a, "tail_zero"_a, "max_abs"_a, "max_rel"_a, "unbacked"_a,
          "sensitive_to"_a, "allow_all_zero"_a);
  m.def("check_contract", &check_contract, "model"_a, "contract"_a, nb::call_guard<GilReleased>(),
        "Every mismatch between the two at once; empty when they agree.");
}

}  // namespace kvbacking::bind
