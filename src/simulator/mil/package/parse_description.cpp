// ModelDescription: the inputs, outputs and states that a caller sees, per function.
#include <algorithm>
#include <set>

#include "mil/package/parser.h"

namespace coremlsim::mil {
namespace {

DataType array_type(std::int64_t code) {
  switch (code) {
    case 65552:
      return DataType::kFloat16;
    case 65568:
      return DataType::kFloat32;
    case 65600:
      return DataType::kFloat64;
    case 131104:
      return DataType::kInt32;
    case 131080:
      return DataType::kInt8;
    default:
      return DataType::kOther;
  }
}

void check_shape(const Shape& shape, const FeatureDescription& feature) {
  element_count(shape, "description of '" + feature.name + "'");
}

void parse_enumerated(Proto message, FeatureDescription& feature) {
  while (message.next()) {
    if (message.field() != 1) continue;
    Proto entry = message.message();
    Shape shape;
    while (entry.next()) {
      if (entry.field() == 1) entry.append_varints(shape);
    }
    check_shape(shape, feature);
    feature.enumerated_shapes.push_back(std::move(shape));
  }
}

void parse_ranges(Proto message, FeatureDescription& feature) {
  while (message.next()) {
    if (message.field() != 1) continue;
    Proto entry = message.message();
    std::pair<std::int64_t, std::int64_t> range{0, -1};
    while (entry.next()) {
      if (entry.field() == 1) range.first = entry.integer();
      if (entry.field() == 2) range.second = entry.integer();
    }
    if (range.first < 0 || (range.second >= 0 && range.second < range.first)) {
      throw ModelError("description of '" + feature.name + "': size range " + std::to_string(range.first) + " to " +
                       std::to_string(range.second));
    }
    feature.shape_ranges.push_back(range);
    if (static_cast<std::int64_t>(feature.shape_ranges.size()) > kMaxRank) {
      throw ModelError("description of '" + feature.name + "': more than " + std::to_string(kMaxRank) + " size ranges");
    }
  }
}

void parse_array(Proto message, FeatureDescription& feature) {
  while (message.next()) {
    switch (message.field()) {
      case 1:
        message.append_varints(feature.shape);
        break;
      case 2:
        feature.dtype = array_type(message.integer());
        break;
      case 21:
        parse_enumerated(message.message(), feature);
        break;
      case 31:
        parse_ranges(message.message(), feature);
        break;
      case 41:
        feature.default_value = static_cast<double>(static_cast<std::int32_t>(message.integer()));
        break;
      case 51:
        feature.default_value = static_cast<double>(message.fixed_float());
        break;
      case 61:
        feature.default_value = message.fixed_double();
        break;
      default:
        break;
    }
  }
  check_shape(feature.shape, feature);
}

void parse_type(Proto message, FeatureDescription& feature) {
  feature.kind = FeatureKind::kOther;
  feature.dtype = DataType::kOther;
  while (message.next()) {
    switch (message.field()) {
      case 1:
        feature.kind = FeatureKind::kInt64;
        break;
      case 2:
        feature.kind = FeatureKind::kDouble;
        break;
      case 3:
        feature.kind = FeatureKind::kString;
        break;
      case 4:
        feature.kind = FeatureKind::kImage;
        break;
      case 5:
        feature.kind = FeatureKind::kMultiArray;
        parse_array(message.message(), feature);
        break;
      case 6:
        feature.kind = FeatureKind::kDictionary;
        break;
      case 7:
        feature.kind = FeatureKind::kSequence;
        break;
      case 8: {
        feature.kind = FeatureKind::kState;
        Proto state = message.message();
        while (state.next()) {
          if (state.field() == 1) parse_array(state.message(), feature);
        }
        break;
      }
      case 1000:
        feature.optional = message.varint() != 0;
        break;
      default:
        break;
    }
  }
}

FeatureDescription parse_feature(Proto message) {
  FeatureDescription feature;
  bool typed = false;
  while (message.next()) {
    if (message.field() == 1) feature.name = std::string(message.bytes());
    if (message.field() == 3) {
      parse_type(message.message(), feature);
      typed = true;
    }
  }
  if (feature.name.empty() || !typed) throw ModelError("description: a feature without a name or a type");
  return feature;
}

void check_distinct(const FunctionDescription& function) {
  for (const auto* group : {&function.inputs, &function.outputs, &function.states}) {
    std::set<std::string_view> names;
    for (const FeatureDescription& feature : *group) {
      if (!names.insert(feature.name).second) {
        throw ModelError("description of function '" + function.name + "': '" + feature.name + "' appears twice");
      }
    }
  }
}

FunctionDescription parse_function_description(Proto message) {
  FunctionDescription function;
  while (message.next()) {
    if (message.field() == 1) function.name = std::string(message.bytes());
    if (message.field() == 2) function.inputs.push_back(parse_feature(message.message()));
    if (message.field() == 3) function.outputs.push_back(parse_feature(message.message()));
    if (message.field() == 6) function.states.push_back(parse_feature(message.message()));
  }
  check_distinct(function);
  return function;
}

}  // namespace

void parse_description(Proto message, Model& model) {
  FunctionDescription single;
  single.name = "main";
  while (message.next()) {
    switch (message.field()) {
      case 1:
        single.inputs.push_back(parse_feature(message.message()));
        break;
      case 10:
        single.outputs.push_back(parse_feature(message.message()));
        break;
      case 13:
        single.states.push_back(parse_feature(message.message()));
        break;
      case 20:
        model.descriptions.push_back(parse_function_description(message.message()));
        break;
      case 21:
        model.default_function = std::string(message.bytes());
        break;
      default:
        break;
    }
  }
  model.multi_function = !model.descriptions.empty();
  if (model.multi_function) return;
  check_distinct(single);
  model.descriptions.push_back(std::move(single));
  if (model.default_function.empty()) model.default_function = "main";
}

}  // namespace coremlsim::mil
