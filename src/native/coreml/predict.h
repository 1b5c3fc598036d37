// One synchronous prediction, and the arrays that came back.
// Threads: takes the model's mutex for the framework call alone; call inside guarded(), without the GIL.
// Ownership: results are retained.
#pragma once

#import <CoreML/CoreML.h>

#include <cstdint>
#include <string>
#include <vector>

#include "coreml/model_impl.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/error.h"
#include "kvbacking/state.h"

namespace kvbacking {

struct RawPrediction {
  RetainPtr<id<MLFeatureProvider>> features;
  std::int64_t elapsed_ns = 0;  // the framework call alone
};

std::int64_t monotonic_ns() noexcept;

// Throws Error(kPrediction) with the NSError or NSException verbatim. `state` is null or in use by the caller.
RawPrediction run_prediction(Model::Impl& model, id<MLFeatureProvider> inputs, MLPredictionOptions* options,
                             State::Impl* state);

// One name per expected output, in order. Appends a failure for each output that is missing, has no array, or was not
// expected; the array of a missing one is nil.
std::vector<RetainPtr<MLMultiArray*>> collect_outputs(id<MLFeatureProvider> features,
                                                      const std::vector<RetainPtr<NSString*>>& names,
                                                      std::vector<CheckFailure>& failures);

}  // namespace kvbacking
