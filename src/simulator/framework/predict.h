// One prediction: checks, execution, delivery into backings or new arrays.
// Threads: any; overlap on one model or state is counted. Ownership: results are autoreleased.
#pragma once

#import <CoreML/CoreML.h>

#include <string>
#include <vector>

#include "framework/faults.h"
#include "framework/model.h"
#include "framework/strong.h"
#include "mil/engine.h"

namespace coremlsim {

// `options` nil: no backings. `state` nil: a stateful model's states start from zero for this call.
id<MLFeatureProvider> predict(MLModel* model, id<MLFeatureProvider> input, MLPredictionOptions* options, MLState* state,
                              NSError** error);
void predict_async(MLModel* model, id<MLFeatureProvider> input, MLPredictionOptions* options, MLState* state,
                   void (^handler)(id<MLFeatureProvider>, NSError*));

struct InputSlot {
  std::string name;
  Strong<MLMultiArray*> array;
};

struct OutputSlot {
  const mil::FeatureDescription* feature = nullptr;
  Strong<MLMultiArray*> backing;  // proposed and allowed; empty when there is none
  Strong<MLMultiArray*> result;
  bool accepted = false;  // the backing object itself is the result, over its own memory
};

}  // namespace coremlsim
