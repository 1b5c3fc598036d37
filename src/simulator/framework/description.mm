#include "framework/description.h"

#include <algorithm>
#include <limits>
#include <string>

#include "framework/api_gate.h"
#include "framework/control.h"
#include "framework/errors.h"
#include "framework/faults.h"
#include "framework/multi_array.h"
#include "framework/strong.h"

using namespace coremlsim;

struct MLMultiArrayShapeConstraintStorage {
  MLMultiArrayShapeConstraintType type = MLMultiArrayShapeConstraintTypeUnspecified;
  Strong<NSArray<NSValue*>*> ranges;
  Strong<NSArray<NSArray<NSNumber*>*>*> shapes;
};
struct MLMultiArrayConstraintStorage {
  Strong<NSArray<NSNumber*>*> shape;
  MLMultiArrayDataType dtype = MLMultiArrayDataTypeFloat32;
  Strong<MLMultiArrayShapeConstraint*> shape_constraint;
};
struct MLStateConstraintStorage {
  Strong<NSArray<NSNumber*>*> shape;
  MLMultiArrayDataType dtype = MLMultiArrayDataTypeFloat16;
};
struct MLFeatureDescriptionStorage {
  mil::FeatureDescription feature;
  Strong<NSString*> name;
  Strong<MLMultiArrayConstraint*> array_constraint;
  Strong<MLStateConstraint*> state_constraint;
};
struct MLModelDescriptionStorage {
  Strong<NSDictionary<NSString*, MLFeatureDescription*>*> inputs, outputs, states;
};

namespace {

MLFeatureType feature_type(mil::FeatureKind kind) {
  switch (kind) {
    case mil::FeatureKind::kMultiArray:
      return MLFeatureTypeMultiArray;
    case mil::FeatureKind::kImage:
      return MLFeatureTypeImage;
    case mil::FeatureKind::kState:
      return MLFeatureTypeState;
    case mil::FeatureKind::kInt64:
      return MLFeatureTypeInt64;
    case mil::FeatureKind::kDouble:
      return MLFeatureTypeDouble;
    case mil::FeatureKind::kString:
      return MLFeatureTypeString;
    case mil::FeatureKind::kDictionary:
      return MLFeatureTypeDictionary;
    case mil::FeatureKind::kSequence:
      return MLFeatureTypeSequence;
    case mil::FeatureKind::kOther:
      return MLFeatureTypeInvalid;
  }
  return MLFeatureTypeInvalid;
}

// Types that MLMultiArray cannot hold (Int8 before macOS 26, ...) keep a value that no array has.
MLMultiArrayDataType declared_type(mil::DataType type) {
  return array_type(type).value_or(static_cast<MLMultiArrayDataType>(0));
}

}  // namespace

@implementation MLMultiArrayShapeConstraint
CORE_ML_SIMULATOR_NO_CODING
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (MLMultiArrayShapeConstraintType)type {
  return _storage->type;
}
- (NSArray<NSValue*>*)sizeRangeForDimension {
  return _storage->ranges.borrow();
}
- (NSArray<NSArray<NSNumber*>*>*)enumeratedShapes {
  return _storage->shapes.borrow();
}
@end

@implementation MLMultiArrayConstraint
CORE_ML_SIMULATOR_NO_CODING
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (NSArray<NSNumber*>*)shape {
  return _storage->shape.borrow();
}
- (MLMultiArrayDataType)dataType {
  return _storage->dtype;
}
- (MLMultiArrayShapeConstraint*)shapeConstraint {
  return _storage->shape_constraint.borrow();
}
@end

@implementation MLStateConstraint
CORE_ML_SIMULATOR_NO_CODING
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (NSArray<NSNumber*>*)bufferShape {
  return _storage->shape.borrow();
}
- (MLMultiArrayDataType)dataType {
  return _storage->dtype;
}
@end

@implementation MLFeatureDescription

CORE_ML_SIMULATOR_GATED
CORE_ML_SIMULATOR_NO_CODING
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (id)copyWithZone:(NSZone*)zone {
  (void)zone;
  return [self retain];  // immutable
}
- (NSString*)name {
  return _storage->name.borrow();
}
- (MLFeatureType)type {
  return feature_type(_storage->feature.kind);
}
- (BOOL)isOptional {
  return _storage->feature.optional;
}
- (nullable MLMultiArrayConstraint*)multiArrayConstraint {
  return _storage->array_constraint.borrow();
}
- (nullable MLStateConstraint*)stateConstraint {
  return _storage->state_constraint.borrow();
}
- (BOOL)isAllowedValue:(MLFeatureValue*)value {
  if (Faults::current().fire(Fault::kDisallow, _storage->feature.name)) {
    return NO;
  }
  return why_not_allowed(_storage->feature, value, false).empty();
}
@end

@implementation MLModelDescription

CORE_ML_SIMULATOR_GATED
CORE_ML_SIMULATOR_NO_CODING
- (void)dealloc {
  delete _storage;
  [super dealloc];
}
- (NSDictionary<NSString*, MLFeatureDescription*>*)inputDescriptionsByName {
  return _storage->inputs.borrow();
}
- (NSDictionary<NSString*, MLFeatureDescription*>*)outputDescriptionsByName {
  return _storage->outputs.borrow();
}
- (NSDictionary<NSString*, MLFeatureDescription*>*)stateDescriptionsByName {
  return _storage->states.borrow();
}
- (nullable NSString*)predictedFeatureName {
  return nil;
}
- (nullable NSString*)predictedProbabilitiesName {
  return nil;
}
- (NSDictionary<MLModelMetadataKey, id>*)metadata {
  return @{};
}
- (nullable NSArray<id>*)classLabels {
  return nil;
}
- (BOOL)isUpdatable {
  return NO;
}
@end

namespace {

MLMultiArrayShapeConstraint* make_shape_constraint(const mil::FeatureDescription& feature) {
  MLMultiArrayShapeConstraint* constraint = [[[MLMultiArrayShapeConstraint alloc] init] autorelease];
  auto* storage = constraint->_storage = new MLMultiArrayShapeConstraintStorage;
  NSMutableArray* shapes = [NSMutableArray array];
  for (const auto& shape : feature.enumerated_shapes) {
    [shapes addObject:to_array(shape)];
  }
  // A range holds every allowed size: location is the smallest, length how many there are.
  NSMutableArray* ranges = [NSMutableArray array];
  for (const auto& [lower, upper] : feature.shape_ranges) {
    const auto length = upper < 0 ? static_cast<NSUInteger>(std::numeric_limits<NSInteger>::max() - lower)
                                  : static_cast<NSUInteger>(upper - lower + 1);
    [ranges addObject:[NSValue valueWithRange:NSMakeRange(static_cast<NSUInteger>(lower), length)]];
  }
  storage->type = [shapes count] > 0   ? MLMultiArrayShapeConstraintTypeEnumerated
                  : [ranges count] > 0 ? MLMultiArrayShapeConstraintTypeRange
                                       : MLMultiArrayShapeConstraintTypeUnspecified;
  storage->shapes = shapes;
  storage->ranges = ranges;
  return constraint;
}

MLFeatureDescription* make_feature(const mil::FeatureDescription& feature) {
  MLFeatureDescription* description = [[[MLFeatureDescription alloc] init] autorelease];
  auto* storage = description->_storage = new MLFeatureDescriptionStorage;
  storage->feature = feature;
  storage->name = to_ns(feature.name);
  if (feature.kind == mil::FeatureKind::kMultiArray) {
    MLMultiArrayConstraint* constraint = [[[MLMultiArrayConstraint alloc] init] autorelease];
    constraint->_storage = new MLMultiArrayConstraintStorage{to_array(feature.shape), declared_type(feature.dtype),
                                                             make_shape_constraint(feature)};
    storage->array_constraint = constraint;
  } else if (feature.kind == mil::FeatureKind::kState) {
    MLStateConstraint* constraint = [[[MLStateConstraint alloc] init] autorelease];
    constraint->_storage = new MLStateConstraintStorage{to_array(feature.shape), declared_type(feature.dtype)};
    storage->state_constraint = constraint;
  }
  return description;
}

Strong<NSDictionary<NSString*, MLFeatureDescription*>*> make_features(
    const std::vector<mil::FeatureDescription>& features) {
  NSMutableDictionary* result = [NSMutableDictionary dictionary];
  for (const auto& feature : features) {
    [result setObject:make_feature(feature) forKey:to_ns(feature.name)];
  }
  return Strong<NSDictionary<NSString*, MLFeatureDescription*>*>(result);
}

bool shape_allowed(const mil::FeatureDescription& feature, const std::vector<std::int64_t>& shape) {
  if (!feature.enumerated_shapes.empty()) {
    return std::find(feature.enumerated_shapes.begin(), feature.enumerated_shapes.end(), shape) !=
           feature.enumerated_shapes.end();
  }
  if (!feature.shape_ranges.empty()) {
    if (shape.size() != feature.shape_ranges.size()) {
      return false;
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
      const auto& [lower, upper] = feature.shape_ranges[i];
      if (shape[i] < lower || (upper >= 0 && shape[i] > upper)) {
        return false;
      }
    }
    return true;
  }
  return feature.shape.empty() || shape == feature.shape;
}

}  // namespace

namespace coremlsim {

MLModelDescription* make_description(const mil::FunctionDescription& function) {
  MLModelDescription* description = [[[MLModelDescription alloc] init] autorelease];
  description->_storage = new MLModelDescriptionStorage{make_features(function.inputs), make_features(function.outputs),
                                                        make_features(function.states)};
  return description;
}

const mil::FeatureDescription& engine_description(MLFeatureDescription* description) {
  return description->_storage->feature;
}

std::string why_not_allowed(const mil::FeatureDescription& feature, MLFeatureValue* value, bool as_backing) {
  const std::string named = "feature " + feature.name;
  if ([value isUndefined]) {
    return feature.optional ? "" : named + " is required but undefined";
  }
  if ([value type] != feature_type(feature.kind)) {
    return named + " is of type " + std::to_string([value type]) + ", expected type " +
           std::to_string(feature_type(feature.kind));
  }
  MLMultiArray* array = [value multiArrayValue];
  if (array == nil) {
    return {};
  }
  const MLMultiArrayDataType wanted = declared_type(feature.dtype);
  const bool half_for_wider = as_backing && options().half_buffers_for_float32 && [array pixelBuffer] != nullptr &&
                              [array dataType] == MLMultiArrayDataTypeFloat16 &&
                              (wanted == MLMultiArrayDataTypeFloat32 || wanted == MLMultiArrayDataTypeDouble);
  if ([array dataType] != wanted && !half_for_wider) {
    return "MultiArray data type " + std::string(type_name([array dataType])) + " of " + named +
           " is incompatible with the model's feature description (" + type_name(wanted) + ")";
  }
  const std::vector<std::int64_t> shape = to_vector([array shape]);
  if (!shape_allowed(feature, shape)) {
    if (!feature.enumerated_shapes.empty()) {
      return "MultiArray shape " + describe(shape) + " of " + named + " is not in enumerated set of allowed shapes";
    }
    return "MultiArray shape " + describe(shape) + " of " + named + " does not match the shape " +
           describe(feature.shape) + " specified in the model description";
  }
  return {};
}

}  // namespace coremlsim
