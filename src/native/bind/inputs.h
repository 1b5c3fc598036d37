// A dict of Python arrays as the native side takes it.
// Threads: constructed and destroyed with the GIL; native() may be read without it.
// Ownership: keeps every exporter alive while it lives; the bytes stay the caller's.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "bind/arrays.h"
#include "kvbacking/error.h"
#include "kvbacking/session.h"

namespace kvbacking::bind {

class Inputs {
 public:
  explicit Inputs(const nanobind::dict& inputs) {
    arrays_.reserve(inputs.size());
    native_.reserve(inputs.size());
    for (const auto& [key, value] : inputs) {
      std::string name = nanobind::cast<std::string>(key);
      ReadOnlyArray array;
      if (!nanobind::try_cast(value, array)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "[bind::Inputs] input '" + name + "': exports neither a buffer nor DLPack memory of the CPU");
      }
      native_.push_back({std::move(name), array.data(), layout_of(array)});
      arrays_.push_back(std::move(array));
    }
  }
  const std::vector<InputArray>& native() const noexcept { return native_; }

 private:
  std::vector<ReadOnlyArray> arrays_;
  std::vector<InputArray> native_;
};

}  // namespace kvbacking::bind
