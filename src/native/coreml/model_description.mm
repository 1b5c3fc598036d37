// What the framework says about a model's features, as plain values.
#import "coreml/availability.h"
#import "coreml/model_impl.h"
#import "coreml/nserror.h"
#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::int64_t kUnbounded = -1;

const char* kind_name(MLFeatureType type) {
  switch (static_cast<NSInteger>(type)) {
    case MLFeatureTypeInt64:
      return "int64";
    case MLFeatureTypeDouble:
      return "double";
    case MLFeatureTypeString:
      return "string";
    case MLFeatureTypeImage:
      return "image";
    case MLFeatureTypeMultiArray:
      return "multi_array";
    case MLFeatureTypeDictionary:
      return "dictionary";
    case MLFeatureTypeSequence:
      return "sequence";
    case 8:  // MLFeatureTypeState, macOS 15
      return "state";
    default:
      return "invalid";
  }
}

FeatureKind kind_of(MLFeatureType type) {
  switch (static_cast<NSInteger>(type)) {
    case MLFeatureTypeMultiArray:
      return FeatureKind::kMultiArray;
    case MLFeatureTypeImage:
      return FeatureKind::kImage;
    case 8:
      return FeatureKind::kState;
    default:
      return FeatureKind::kOther;
  }
}

void describe_shape(TensorSpec& spec, MLMultiArrayConstraint* constraint) {
  spec.shape = integers([constraint shape]);
  spec.dtype = dtype_of([constraint dataType]);
  MLMultiArrayShapeConstraint* shapes = [constraint shapeConstraint];
  if ([shapes type] == MLMultiArrayShapeConstraintTypeEnumerated) {
    for (NSArray<NSNumber*>* shape in [shapes enumeratedShapes]) spec.enumerated_shapes.push_back(integers(shape));
    spec.flexible = spec.enumerated_shapes.size() > 1 ||
                    (spec.enumerated_shapes.size() == 1 && spec.enumerated_shapes.front() != spec.shape);
  } else if ([shapes type] == MLMultiArrayShapeConstraintTypeRange) {
    for (NSValue* boxed in [shapes sizeRangeForDimension]) {
      const NSRange range = [boxed rangeValue];
      const auto lower = static_cast<std::int64_t>(range.location);
      // The range is half open in `length`; NSNotFound and sums past the largest integer mean no upper bound.
      const bool open = range.length >= static_cast<NSUInteger>(NSIntegerMax) - range.location;
      spec.ranges.emplace_back(lower, open ? kUnbounded : lower + static_cast<std::int64_t>(range.length) - 1);
    }
    for (std::size_t i = 0; i < spec.ranges.size(); ++i) {
      const auto [lower, upper] = spec.ranges[i];
      if (upper != lower || i >= spec.shape.size() || spec.shape[i] != lower) spec.flexible = true;
    }
  }
  bool known = !spec.shape.empty();
  for (const std::int64_t size : spec.shape) known = known && size > 0;
  if (!known) {  // an output whose shape only the prediction decides
    spec.shape.clear();
    spec.flexible = true;
  }
}

}  // namespace

TensorSpec tensor_spec(NSString* name, MLFeatureDescription* description) {
  TensorSpec spec;
  spec.name = to_string(name);
  spec.kind = kind_of([description type]);
  spec.kind_name = kind_name([description type]);
  spec.optional = [description isOptional];
  if (spec.kind == FeatureKind::kMultiArray) describe_shape(spec, [description multiArrayConstraint]);
  KVB_ASKED_AT_RUN_TIME_BEGIN
  if (spec.kind == FeatureKind::kState && has_state()) {
    spec.shape = integers([[description stateConstraint] bufferShape]);
    spec.dtype = dtype_of([[description stateConstraint] dataType]);
  }
  KVB_ASKED_AT_RUN_TIME_END
  return spec;
}

MLComputeUnits framework_compute_units(ComputeUnits units) noexcept {
  switch (units) {
    case ComputeUnits::kCpuOnly:
      return MLComputeUnitsCPUOnly;
    case ComputeUnits::kCpuAndGpu:
      return MLComputeUnitsCPUAndGPU;
    case ComputeUnits::kCpuAndNeuralEngine:
      return MLComputeUnitsCPUAndNeuralEngine;
    case ComputeUnits::kAll:
      break;
  }
  return MLComputeUnitsAll;
}

RetainPtr<MLModelConfiguration*> model_configuration(ComputeUnits units, const std::optional<std::string>& function) {
  auto configuration = adopt([[MLModelConfiguration alloc] init]);
  [configuration.get() setComputeUnits:framework_compute_units(units)];
  if (function) {
    if (!has_functions()) {
      throw Error(ErrorCode::kUnsupportedPlatform,
                  "[model.load] function '" + *function + "': choosing a function needs macOS 15 or later");
    }
    KVB_ASKED_AT_RUN_TIME_BEGIN
    [configuration.get() setFunctionName:to_nsstring(*function)];
    KVB_ASKED_AT_RUN_TIME_END
  }
  return configuration;
}

}  // namespace kvbacking
