#include "core/checks.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "bind/bind.h"
#include "kvbacking/error.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace kvbacking::bind {

void init_checks(nb::module_& m) {
  m.def(
      "check_names",
      [] {
        std::vector<std::string> names;
        for (const Check check : all_checks()) {
          names.emplace_back(check_name(check));
        }
        return names;
      },
      "Every check by name.");
  m.def(
      "check_enabled",
      [](const std::string& name) {
        const std::optional<Check> check = check_from_name(name);
        if (!check) {
          throw Error(ErrorCode::kInvalidArgument, "[bind::check_enabled] no check is named '" + name + "'");
        }
        return check_enabled(*check);
      },
      "name"_a, "True, except in a mutation build for the one check that is switched off.");
}

}  // namespace kvbacking::bind
