// MLModelAsset over a compiled model: function names and descriptions without loading.
#include <CoreML/CoreML.h>

#include <memory>

#include "framework/api_gate.h"
#include "framework/description.h"
#include "framework/errors.h"
#include "framework/model.h"
#include "framework/strong.h"

using namespace coremlsim;

struct MLModelAssetStorage {
  std::shared_ptr<const mil::Package> package;
};

@implementation MLModelAsset

CORE_ML_SIMULATOR_GATED

+ (nullable instancetype)modelAssetWithURL:(NSURL*)compiledModelURL error:(NSError**)error {
  auto package = open_compiled(compiledModelURL, error);
  if (package == nullptr) {
    return nil;
  }
  MLModelAsset* asset = [[MLModelAsset alloc] autorelease];
  asset->_storage = new MLModelAssetStorage{std::move(package)};
  return asset;
}

- (void)dealloc {
  delete _storage;
  [super dealloc];
}

- (void)describeFunction:(NSString*)name
       completionHandler:(void (^)(MLModelDescription* _Nullable description, NSError* _Nullable error))handler {
  const auto package = _storage->package;
  const Strong<NSString*> wanted = name;
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([package, wanted, done] {
    NSError* error = nil;
    const mil::FunctionDescription* function = find_function(*package, wanted.get(), &error);
    MLModelDescription* description = function != nullptr ? make_description(*function) : nil;
    complete<MLModelDescription*>(done, description, error);
  });
}

- (void)modelDescriptionWithCompletionHandler:(void (^)(MLModelDescription* _Nullable description,
                                                        NSError* _Nullable error))handler {
  [self describeFunction:nil completionHandler:handler];
}

- (void)modelDescriptionOfFunctionNamed:(NSString*)functionName
                      completionHandler:
                          (void (^)(MLModelDescription* _Nullable description, NSError* _Nullable error))handler {
  [self describeFunction:functionName completionHandler:handler];
}

// A model with one function has no function names.
- (void)functionNamesWithCompletionHandler:(void (^)(NSArray<NSString*>* _Nullable functionNames,
                                                     NSError* _Nullable error))handler {
  const auto package = _storage->package;
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([package, done] {
    NSMutableArray* names = [NSMutableArray array];
    if (package->is_multi_function()) {
      for (const mil::FunctionDescription& function : package->functions()) {
        [names addObject:to_ns(function.name)];
      }
    }
    complete<NSArray*>(done, names, nil);
  });
}

@end
