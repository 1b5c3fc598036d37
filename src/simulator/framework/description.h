// Core ML descriptions made from the engine's.
// Threads: immutable after creation. Ownership: results are autoreleased.
#pragma once

#import <CoreML/CoreML.h>

#include "mil/engine.h"

namespace coremlsim {

MLModelDescription* make_description(const mil::FunctionDescription& function);
// Empty when an array of this layout is a value of the feature; otherwise why not, in the framework's words.
std::string why_not_allowed(const mil::FeatureDescription& feature, MLFeatureValue* value, bool as_backing);
const mil::FeatureDescription& engine_description(MLFeatureDescription* description);

}  // namespace coremlsim
