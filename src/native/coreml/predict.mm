#import "coreml/predict.h"

#include <time.h>

#include <mutex>

#include "core/checks.h"
#import "coreml/availability.h"
#import "coreml/nserror.h"
#import "coreml/state_impl.h"
#include "kvbacking/signpost.h"

namespace kvbacking {
namespace {

bool has_name(NSString* name, const std::vector<RetainPtr<NSString*>>& names) {
  for (const auto& expected : names) {
    if ([expected.get() isEqualToString:name]) return true;
  }
  return false;
}

}  // namespace

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

RawPrediction run_prediction(Model::Impl& model, id<MLFeatureProvider> inputs, MLPredictionOptions* options,
                             State::Impl* state) {
  std::unique_lock<std::mutex> lock(model.prediction_mutex, std::defer_lock);
  if (check_enabled(Check::kSerialised)) lock.lock();
  NSError* error = nil;
  RawPrediction result;
  id<MLFeatureProvider> features = nil;
  const StageSignpost signpost(Stage::kPredict);
  const std::int64_t start = monotonic_ns();
  if (state == nullptr) {
    features = [model.model.get() predictionFromFeatures:inputs options:options error:&error];
  } else {
    KVB_ASKED_AT_RUN_TIME_BEGIN
    features = [model.model.get() predictionFromFeatures:inputs usingState:static_cast<MLState*>(state->state.get())
                                                 options:options
                                                   error:&error];
    KVB_ASKED_AT_RUN_TIME_END
  }
  result.elapsed_ns = monotonic_ns() - start;
  if (features == nil) throw nserror_error(ErrorCode::kPrediction, "predict", error);
  result.features = retain(features);
  return result;
}

std::vector<RetainPtr<MLMultiArray*>> collect_outputs(id<MLFeatureProvider> features,
                                                      const std::vector<RetainPtr<NSString*>>& names,
                                                      std::vector<CheckFailure>& failures) {
  NSSet<NSString*>* returned = [features featureNames];
  std::vector<RetainPtr<MLMultiArray*>> arrays;
  arrays.reserve(names.size());
  for (const auto& name : names) {
    MLMultiArray* array = nil;
    if ([returned containsObject:name.get()]) {
      MLFeatureValue* value = [features featureValueForName:name.get()];
      array = [value multiArrayValue];
      if (array == nil && check_enabled(Check::kNilValue)) {
        failures.push_back({to_string(name.get()), check_name(Check::kNilValue), "a multi-array",
                            value == nil ? "no value" : "a value without a multi-array"});
      }
    } else if (check_enabled(Check::kReturnedNames)) {
      failures.push_back({to_string(name.get()), check_name(Check::kReturnedNames), "an output of the prediction",
                          "the prediction did not return it"});
    }
    arrays.push_back(retain(array));
  }
  if (check_enabled(Check::kReturnedNames)) {
    for (NSString* name in returned) {
      if (has_name(name, names)) continue;
      failures.push_back(
          {to_string(name), check_name(Check::kReturnedNames), "no such output", "the prediction returned it"});
    }
  }
  return arrays;
}

}  // namespace kvbacking
