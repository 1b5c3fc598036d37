#include <CoreML/CoreML.h>

#include "framework/errors.h"
#include "framework/strong.h"

using coremlsim::Strong;

struct MLDictionaryFeatureProviderStorage {
  Strong<NSDictionary<NSString*, MLFeatureValue*>*> values;
};
struct MLArrayBatchProviderStorage {
  Strong<NSArray<id<MLFeatureProvider>>*> providers;
};

namespace {

// Values may be feature values or objects that one can be made of; nil when not.
MLFeatureValue* to_feature_value(id object) {
  if ([object isKindOfClass:[MLFeatureValue class]]) {
    return object;
  }
  if ([object isKindOfClass:[MLMultiArray class]]) {
    return [MLFeatureValue featureValueWithMultiArray:object];
  }
  if ([object isKindOfClass:[NSString class]]) {
    return [MLFeatureValue featureValueWithString:object];
  }
  if ([object isKindOfClass:[MLSequence class]]) {
    return [MLFeatureValue featureValueWithSequence:object];
  }
  if ([object isKindOfClass:[NSDictionary class]]) {
    return [MLFeatureValue featureValueWithDictionary:object error:nullptr];
  }
  if ([object isKindOfClass:[NSNumber class]]) {
    const char kind = *[static_cast<NSNumber*>(object) objCType];
    return kind == 'd' || kind == 'f' ? [MLFeatureValue featureValueWithDouble:[object doubleValue]]
                                      : [MLFeatureValue featureValueWithInt64:[object longLongValue]];
  }
  return nil;
}

}  // namespace

@implementation MLDictionaryFeatureProvider

CORE_ML_SIMULATOR_NO_CODING

- (nullable instancetype)initWithDictionary:(NSDictionary<NSString*, id>*)dictionary error:(NSError**)error {
  if ((self = [super init]) == nil) {
    return nil;
  }
  NSMutableDictionary<NSString*, MLFeatureValue*>* values = [NSMutableDictionary dictionary];
  for (NSString* name in dictionary) {
    MLFeatureValue* value = to_feature_value([dictionary objectForKey:name]);
    if (value == nil) {
      coremlsim::fail(
          error, MLModelErrorFeatureType,
          "The object for feature " + coremlsim::to_std(name) + " cannot be represented as a feature value.");
      [self release];
      return nil;
    }
    [values setObject:value forKey:name];
  }
  _storage =
      new MLDictionaryFeatureProviderStorage{Strong<NSDictionary<NSString*, MLFeatureValue*>*>::adopt([values copy])};
  return self;
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (NSDictionary<NSString*, MLFeatureValue*>*)dictionary {
  return _storage->values.borrow();
}
- (NSSet<NSString*>*)featureNames {
  return [NSSet setWithArray:[_storage->values.get() allKeys]];
}
- (nullable MLFeatureValue*)featureValueForName:(NSString*)featureName {
  return [_storage->values.get() objectForKey:featureName];
}
- (nullable MLFeatureValue*)objectForKeyedSubscript:(NSString*)featureName {
  return [self featureValueForName:featureName];
}
- (NSUInteger)countByEnumeratingWithState:(NSFastEnumerationState*)state
                                  objects:(id __unsafe_unretained[])buffer
                                    count:(NSUInteger)length {
  return [_storage->values.get() countByEnumeratingWithState:state objects:buffer count:length];
}
@end

@implementation MLArrayBatchProvider

- (instancetype)initWithFeatureProviderArray:(NSArray<id<MLFeatureProvider>>*)array {
  if ((self = [super init]) != nil) {
    _storage = new MLArrayBatchProviderStorage{Strong<NSArray<id<MLFeatureProvider>>*>::adopt([array copy])};
  }
  return self;
}
- (nullable instancetype)initWithDictionary:(NSDictionary<NSString*, NSArray*>*)dictionary error:(NSError**)error {
  NSUInteger count = 0;
  bool first = true;
  for (NSString* name in dictionary) {
    const NSUInteger length = [[dictionary objectForKey:name] count];
    if (!first && length != count) {
      coremlsim::fail(error, MLModelErrorFeatureType, "The arrays of a batch differ in length.");
      [self release];
      return nil;
    }
    count = length;
    first = false;
  }
  NSMutableArray* providers = [NSMutableArray arrayWithCapacity:count];
  for (NSUInteger i = 0; i < count; ++i) {
    NSMutableDictionary* values = [NSMutableDictionary dictionary];
    for (NSString* name in dictionary) {
      [values setObject:[[dictionary objectForKey:name] objectAtIndex:i] forKey:name];
    }
    MLDictionaryFeatureProvider* provider =
        [[[MLDictionaryFeatureProvider alloc] initWithDictionary:values error:error] autorelease];
    if (provider == nil) {
      [self release];
      return nil;
    }
    [providers addObject:provider];
  }
  return [self initWithFeatureProviderArray:providers];
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (NSArray<id<MLFeatureProvider>>*)array {
  return _storage->providers.borrow();
}
- (NSInteger)count {
  return static_cast<NSInteger>([_storage->providers.get() count]);
}
- (id<MLFeatureProvider>)featuresAtIndex:(NSInteger)index {
  return [_storage->providers.get() objectAtIndex:static_cast<NSUInteger>(index)];
}
@end
