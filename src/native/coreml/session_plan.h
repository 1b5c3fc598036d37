// What a session knows before its first prediction and never changes: shared by the session, its sets and predictions.
// Threads: immutable. Ownership: keeps the model.
#pragma once

#import <CoreML/CoreML.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coreml/multi_array.h"
#include "coreml/retain_ptr.h"
#include "coreml/surface.h"
#include "kvbacking/session.h"

namespace kvbacking {

struct OutputPlan {
  std::string name;
  bool backed = false;          // a contract output; the others are copied and not scanned
  std::optional<Layout> dense;  // empty for an unbacked output without a fixed shape
  ArrayGeometry geometry;       // of `dense`
  RetainPtr<MLFeatureDescription*> description;
};

struct SessionPlan {
  std::shared_ptr<Model> model;
  Contract contract;
  SessionOptions options;
  std::vector<OutputPlan> outputs;         // contract outputs first, then unbacked
  std::vector<RetainPtr<NSString*>> keys;  // their names
  std::size_t backed_count = 0;
};

// Throws Error(kContract) with every mismatch, surface refusals included.
std::shared_ptr<const SessionPlan> make_session_plan(std::shared_ptr<Model> model, Contract contract,
                                                     SessionOptions options);

}  // namespace kvbacking
