#include <CoreML/CoreML.h>

#include <cstdint>
#include <string>

#include "framework/errors.h"
#include "framework/strong.h"

using coremlsim::Strong;

struct MLSequenceStorage {
  MLFeatureType type = MLFeatureTypeInvalid;
  Strong<NSArray*> values;
};

@implementation MLSequence

CORE_ML_SIMULATOR_NO_CODING

+ (instancetype)sequenceOfType:(MLFeatureType)type values:(NSArray*)values {
  MLSequence* sequence = [[[self alloc] init] autorelease];
  sequence->_storage = new MLSequenceStorage{type, Strong<NSArray*>::adopt([values copy])};
  return sequence;
}
+ (instancetype)emptySequenceWithType:(MLFeatureType)type {
  return [self sequenceOfType:type values:@[]];
}
+ (instancetype)sequenceWithStringArray:(NSArray<NSString*>*)stringValues {
  return [self sequenceOfType:MLFeatureTypeString values:stringValues];
}
+ (instancetype)sequenceWithInt64Array:(NSArray<NSNumber*>*)int64Values {
  return [self sequenceOfType:MLFeatureTypeInt64 values:int64Values];
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (MLFeatureType)type {
  return _storage->type;
}
- (NSArray<NSString*>*)stringValues {
  return _storage->type == MLFeatureTypeString ? _storage->values.borrow() : @[];
}
- (NSArray<NSNumber*>*)int64Values {
  return _storage->type == MLFeatureTypeInt64 ? _storage->values.borrow() : @[];
}
@end

struct MLFeatureValueStorage {
  MLFeatureType type = MLFeatureTypeInvalid;
  bool undefined = false;
  std::int64_t integer = 0;
  double number = 0;
  Strong<id> object;  // string, array, dictionary, sequence or pixel buffer
};

@implementation MLFeatureValue

CORE_ML_SIMULATOR_NO_CODING

+ (instancetype)valueOfType:(MLFeatureType)type object:(id)object {
  MLFeatureValue* value = [[[self alloc] init] autorelease];
  value->_storage = new MLFeatureValueStorage;
  value->_storage->type = type;
  value->_storage->object = object;
  return value;
}
+ (instancetype)featureValueWithInt64:(int64_t)number {
  MLFeatureValue* value = [self valueOfType:MLFeatureTypeInt64 object:nil];
  value->_storage->integer = number;
  return value;
}
+ (instancetype)featureValueWithDouble:(double)number {
  MLFeatureValue* value = [self valueOfType:MLFeatureTypeDouble object:nil];
  value->_storage->number = number;
  return value;
}
+ (instancetype)featureValueWithString:(NSString*)text {
  return [self valueOfType:MLFeatureTypeString object:[[text copy] autorelease]];
}
+ (instancetype)featureValueWithMultiArray:(MLMultiArray*)array {
  return [self valueOfType:MLFeatureTypeMultiArray object:array];
}
+ (instancetype)featureValueWithPixelBuffer:(CVPixelBufferRef)buffer {
  return [self valueOfType:MLFeatureTypeImage object:reinterpret_cast<id>(buffer)];
}
+ (instancetype)featureValueWithSequence:(MLSequence*)sequence {
  return [self valueOfType:MLFeatureTypeSequence object:sequence];
}
+ (instancetype)undefinedFeatureValueWithType:(MLFeatureType)type {
  MLFeatureValue* value = [self valueOfType:type object:nil];
  value->_storage->undefined = true;
  return value;
}
+ (nullable instancetype)featureValueWithDictionary:(NSDictionary<id<NSCopying>, NSNumber*>*)dictionary
                                              error:(NSError**)error {
  for (id key in dictionary) {
    if (![key isKindOfClass:[NSString class]] && ![key isKindOfClass:[NSNumber class]]) {
      coremlsim::fail(error, MLModelErrorFeatureType, "A feature dictionary's keys must be strings or numbers.");
      return nil;
    }
  }
  return [self valueOfType:MLFeatureTypeDictionary object:[[dictionary copy] autorelease]];
}
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];  // immutable
}

- (MLFeatureType)type {
  return _storage->type;
}
- (BOOL)isUndefined {
  return _storage->undefined;
}
// Accessors of another type give zero, empty or nil: nothing is converted.
- (int64_t)int64Value {
  return _storage->integer;
}
- (double)doubleValue {
  return _storage->number;
}
- (id)objectIfType:(MLFeatureType)type {
  return _storage->type == type ? _storage->object.borrow() : nil;
}
- (NSString*)stringValue {
  NSString* text = [self objectIfType:MLFeatureTypeString];
  return text != nil ? text : @"";
}
- (nullable MLMultiArray*)multiArrayValue {
  return [self objectIfType:MLFeatureTypeMultiArray];
}
- (NSDictionary<id<NSCopying>, NSNumber*>*)dictionaryValue {
  NSDictionary* dictionary = [self objectIfType:MLFeatureTypeDictionary];
  return dictionary != nil ? dictionary : @{};
}
- (nullable CVPixelBufferRef)imageBufferValue {
  return reinterpret_cast<CVPixelBufferRef>([self objectIfType:MLFeatureTypeImage]);
}
- (nullable MLSequence*)sequenceValue {
  return [self objectIfType:MLFeatureTypeSequence];
}

- (BOOL)isEqualToFeatureValue:(MLFeatureValue*)other {
  const MLFeatureValueStorage& theirs = *other->_storage;
  if (theirs.type != _storage->type || theirs.undefined != _storage->undefined) {
    return NO;
  }
  switch (_storage->type) {
    case MLFeatureTypeInt64:
      return theirs.integer == _storage->integer;
    case MLFeatureTypeDouble:
      return theirs.number == _storage->number;
    case MLFeatureTypeString:
    case MLFeatureTypeDictionary:
      return [_storage->object.get() isEqual:theirs.object.get()];
    default:
      return _storage->object.get() == theirs.object.get();
  }
}
- (BOOL)isEqual:(id)other {
  return [other isKindOfClass:[MLFeatureValue class]] && [self isEqualToFeatureValue:other];
}
- (NSUInteger)hash {
  return static_cast<NSUInteger>(_storage->type);
}
@end
