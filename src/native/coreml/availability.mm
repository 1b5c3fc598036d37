#import "coreml/availability.h"

#import <CoreML/CoreML.h>

namespace kvbacking {

KVB_ASKED_AT_RUN_TIME_BEGIN

bool has_state() {
  return NSClassFromString(@"MLState") != nil && [MLModel instancesRespondToSelector:@selector(newState)] &&
         [MLModelDescription instancesRespondToSelector:@selector(stateDescriptionsByName)];
}

bool has_functions() {
  return NSClassFromString(@"MLModelAsset") != nil &&
         [MLModelAsset respondsToSelector:@selector(modelAssetWithURL:error:)] &&
         [MLModelConfiguration instancesRespondToSelector:@selector(setFunctionName:)];
}

bool has_compute_plan() {
  return NSClassFromString(@"MLComputePlan") != nil &&
         [MLComputePlan respondsToSelector:@selector(loadContentsOfURL:configuration:completionHandler:)];
}

KVB_ASKED_AT_RUN_TIME_END

}  // namespace kvbacking
