// A dict of Python arrays as the native side takes it.
// Threads: constructed and destroyed with the GIL; native() may be read without it.
// Ownership: keeps every exporter alive while it lives; the bytes stay the caller's.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bind/arrays.h"
#include "bind/reaper.h"
#include "kvbacking/error.h"
#include "kvbacking/owned_surface.h"
#include "kvbacking/session.h"

namespace kvbacking::bind {

// Which inputs are lent to the framework; the others are copied.
struct Borrow {
  Lending lending = Lending::kCopy;
  std::vector<std::string> names;
  Lending of(const std::string& name) const {
    return std::find(names.begin(), names.end(), name) == names.end() ? Lending::kCopy : lending;
  }
};

class Inputs {
 public:
  explicit Inputs(const nanobind::dict& inputs, const Borrow& borrow = {}) {
    arrays_.reserve(inputs.size());
    native_.reserve(inputs.size());
    for (const auto& [key, value] : inputs) {
      std::string name = nanobind::cast<std::string>(key);
      std::shared_ptr<OwnedSurface> surface;
      if (nanobind::isinstance<OwnedSurface>(value)) {
        surface = nanobind::cast<std::shared_ptr<OwnedSurface>>(value);
        native_.push_back({std::move(name), nullptr, surface->layout(), Lending::kRequired, {}, surface});
        continue;
      }
      ReadOnlyArray array;
      if (!nanobind::try_cast(value, array)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "[bind::Inputs] input '" + name + "': exports neither a buffer nor DLPack memory of the CPU");
      }
      const Lending lending = borrow.of(name);
      native_.push_back({std::move(name), array.data(), layout_of(array), lending});
      if (lending != Lending::kCopy) native_.back().owner = own_import(array);
      arrays_.push_back(std::move(array));
    }
  }
  const std::vector<InputArray>& native() const noexcept { return native_; }

 private:
  std::vector<ReadOnlyArray> arrays_;
  std::vector<InputArray> native_;
};

}  // namespace kvbacking::bind
