// Where Core ML expects to run each operation of a loaded model (MLComputePlan, macOS 14.4 and later). An expectation,
// not a measurement, and no evidence about backings.
// Threads: any, without the GIL. Ownership: values only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kvbacking/model.h"

namespace kvbacking {

struct PlannedOperation {
  std::string function;              // of the ML program
  std::string op;                    // operator name
  std::vector<std::string> outputs;  // names
  std::string preferred_device;      // "cpu" | "gpu" | "neural_engine" | "unknown"; "" when the plan says nothing
  std::vector<std::string> supported_devices;
  std::optional<double> cost;  // estimated share of the whole, 0 to 1
};

// The operations of an ML program, nested blocks included. Throws Error(kUnsupportedPlatform) where the API is absent,
// Error(kModel) with the NSError verbatim, for a model that is no ML program, or when `timeout_s` seconds pass without
// an answer.
std::vector<PlannedOperation> compute_plan(const Model& model, double timeout_s = 120.0);

}  // namespace kvbacking
