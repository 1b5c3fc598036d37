#include "framework/model.h"

#include <exception>
#include <string>

#include "framework/api_gate.h"
#include "framework/control.h"
#include "framework/description.h"
#include "framework/errors.h"
#include "framework/faults.h"
#include "framework/predict.h"

using namespace coremlsim;

// By this class the product recognises at run time that it does not run on Apple's framework.
@interface CoreMLSimulator : NSObject
+ (NSString*)version;
+ (NSString*)chipName;
@end

@implementation CoreMLSimulator
+ (NSString*)version {
  return to_ns(kVersion);
}
+ (NSString*)chipName {
  return to_ns(kChipName);
}
@end

@implementation MLModel

CORE_ML_SIMULATOR_GATED

+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url error:(NSError**)error {
  return [self modelWithContentsOfURL:url configuration:[[[MLModelConfiguration alloc] init] autorelease] error:error];
}

+ (nullable instancetype)modelWithContentsOfURL:(NSURL*)url
                                  configuration:(MLModelConfiguration*)configuration
                                          error:(NSError**)error {
  const auto package = open_compiled(url, error);
  if (package == nullptr) {
    return nil;
  }
  NSString* const function_name = api_available(15) ? [configuration functionName] : nil;
  const mil::FunctionDescription* function = find_function(*package, function_name, error);
  if (function == nullptr) {
    return nil;
  }
  const Options now = options();
  const auto units = static_cast<std::size_t>([configuration computeUnits]);
  if (units >= now.numerics.size()) {
    raise_invalid_argument("unknown compute units " + std::to_string(units));
  }
  std::unique_ptr<ModelRuntime> runtime;
  try {
    runtime = std::make_unique<ModelRuntime>(package, function->name, now.numerics[units], now.threads);
  } catch (const std::exception& exception) {
    fail(error, MLModelErrorGeneric, "Failed to load the model: " + std::string(exception.what()));
    return nil;
  }
  MLModel* model = [[[self alloc] init] autorelease];
  model->_storage =
      new MLModelStorage{std::move(runtime), function, Strong<MLModelDescription*>(make_description(*function)),
                         Strong<MLModelConfiguration*>::adopt([configuration copy])};
  count_live(Live::kModel, 1);
  return model;
}

+ (void)loadContentsOfURL:(NSURL*)url
            configuration:(MLModelConfiguration*)configuration
        completionHandler:(void (^)(MLModel* _Nullable model, NSError* _Nullable error))handler {
  const Strong<NSURL*> from = url;
  const auto chosen = Strong<MLModelConfiguration*>::adopt([configuration copy]);
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([from, chosen, done] {
    NSError* error = nil;
    MLModel* model = [MLModel modelWithContentsOfURL:from.get() configuration:chosen.get() error:&error];
    complete<MLModel*>(done, model, error);
  });
}

- (void)dealloc {
  if (_storage != nullptr) {
    delete _storage;
    count_live(Live::kModel, -1);
  }
  [super dealloc];
}

- (MLModelDescription*)modelDescription {
  return _storage->description.borrow();
}
- (MLModelConfiguration*)configuration {
  return [[_storage->configuration.get() copy] autorelease];
}

- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input error:(NSError**)error {
  return predict(self, input, nil, nil, error);
}
- (nullable id<MLFeatureProvider>)predictionFromFeatures:(id<MLFeatureProvider>)input
                                                 options:(MLPredictionOptions*)options
                                                   error:(NSError**)error {
  return predict(self, input, options, nil, error);
}
- (void)predictionFromFeatures:(id<MLFeatureProvider>)input
             completionHandler:
                 (void (^)(id<MLFeatureProvider> _Nullable output, NSError* _Nullable error))completionHandler {
  predict_async(self, input, nil, nil, completionHandler);
}
- (void)predictionFromFeatures:(id<MLFeatureProvider>)input
                       options:(MLPredictionOptions*)options
             completionHandler:
                 (void (^)(id<MLFeatureProvider> _Nullable output, NSError* _Nullable error))completionHandler {
  predict_async(self, input, options, nil, completionHandler);
}

- (nullable id<MLBatchProvider>)predictionsFromBatch:(id<MLBatchProvider>)inputBatch error:(NSError**)error {
  return [self predictionsFromBatch:inputBatch options:[[[MLPredictionOptions alloc] init] autorelease] error:error];
}
- (nullable id<MLBatchProvider>)predictionsFromBatch:(id<MLBatchProvider>)inputBatch
                                             options:(MLPredictionOptions*)options
                                               error:(NSError**)error {
  // Backings are one set of memory; several predictions of one call cannot all write into it.
  MLPredictionOptions* effective = coremlsim::options().backings_in_batch ? options : nil;
  NSMutableArray* results = [NSMutableArray array];
  for (NSInteger i = 0; i < [inputBatch count]; ++i) {
    id<MLFeatureProvider> result = predict(self, [inputBatch featuresAtIndex:i], effective, nil, error);
    if (result == nil) {
      return nil;
    }
    [results addObject:result];
  }
  return [[[MLArrayBatchProvider alloc] initWithFeatureProviderArray:results] autorelease];
}

@end
