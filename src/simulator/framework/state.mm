// Stateful models: MLState and the predictions that use it.
#include <CoreML/CoreML.h>

#include "framework/errors.h"
#include "framework/model.h"
#include "framework/multi_array.h"
#include "framework/predict.h"
#include "framework/state.h"

using namespace coremlsim;

@implementation MLState

- (void)dealloc {
  if (_storage != nullptr) {
    delete _storage;
    count_live(Live::kState, -1);
  }
  [super dealloc];
}

- (void)getMultiArrayForStateNamed:(NSString*)stateName handler:(void(NS_NOESCAPE ^)(MLMultiArray* buffer))handler {
  const auto found = _storage->buffers.find(to_std(stateName));
  if (found == _storage->buffers.end()) {
    raise_invalid_argument("the model has no state named \"" + to_std(stateName) + "\"");
  }
  if (_storage->in_flight.load() > 0) {
    count_violation(Violation::kStateAccess);
    @throw [NSException exceptionWithName:NSInternalInconsistencyException
                                   reason:@"a state is read or written while a prediction uses it"
                                 userInfo:nil];
  }
  const mil::TensorView& view = found->second.view;
  MLMultiArray* array = [[[MLMultiArray alloc] initWithDataPointer:view.data shape:to_array(view.shape)
                                                          dataType:*array_type(view.dtype)
                                                           strides:to_array(view.strides)
                                                       deallocator:nullptr
                                                             error:nullptr] autorelease];
  handler(array);
  invalidate(array);  // a view that is kept raises instead of reading freed memory
}

@end

@implementation MLModel (MLState)

- (MLState*)newState {
  MLState* state = [MLState alloc];
  state->_storage = new MLStateStorage(_storage->function->states);
  count_live(Live::kState, 1);
  return state;
}

- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                   error:(NSError**)error {
  return predict(self, inputFeatures, nil, state, error);
}
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                                              usingState:(MLState*)state
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError**)error {
  return predict(self, inputFeatures, options, state, error);
}
- (void)predictionFromFeatures:(id<MLFeatureProvider>)inputFeatures
                    usingState:(MLState*)state
                       options:(MLPredictionOptions*)options
             completionHandler:
                 (void (^)(id<MLFeatureProvider> _Nullable output, NSError* _Nullable error))completionHandler {
  predict_async(self, inputFeatures, options, state, completionHandler);
}

@end
