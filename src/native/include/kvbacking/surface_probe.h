// What nothing public documents: which treatment of a surface's array makes Core ML refuse it as an output backing.
// Threads: any, without the GIL. Ownership: values only; every surface and array lives for one step.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvbacking/model.h"
#include "kvbacking/session.h"

namespace kvbacking {

// One surface, treated as `step` says, then proposed for `output`.
struct SurfaceProbeStep {
  std::string step;     // "fresh", "read by handler", "read under lock", "second prediction", "locked", "used as input"
  std::string outcome;  // "accepted", "ignored", "error", "skipped"
  std::string domain;   // of the NSError
  std::int64_t code = 0;
  std::string message;  // verbatim, or why the step was skipped
  std::int64_t bytes_per_row = 0;
};

// `output` must be a fixed-shape output that fits a surface. "used as input" needs an input of its shape and dtype.
// Throws Error(kContract) for an output that cannot be probed; what predictions say is in the steps.
std::vector<SurfaceProbeStep> probe_surface(const std::shared_ptr<Model>& model, const std::vector<InputArray>& inputs,
                                            const std::string& output);

}  // namespace kvbacking
