#import "coreml/inputs.h"

#include <algorithm>

#include "core/checks.h"

namespace kvbacking {
namespace {

bool shape_allowed(const TensorSpec& spec, const std::vector<std::int64_t>& shape) {
  if (!spec.flexible) return shape == spec.shape;
  if (!spec.enumerated_shapes.empty()) {
    return std::find(spec.enumerated_shapes.begin(), spec.enumerated_shapes.end(), shape) !=
           spec.enumerated_shapes.end();
  }
  if (spec.ranges.empty()) return !shape.empty();  // the framework decides
  if (spec.ranges.size() != shape.size()) return false;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const auto [lower, upper] = spec.ranges[i];
    if (shape[i] < lower || (upper >= 0 && shape[i] > upper)) return false;
  }
  return true;
}

std::string allowed_shapes(const TensorSpec& spec) {
  if (!spec.flexible) return join_numbers(spec.shape);
  if (!spec.enumerated_shapes.empty()) {
    std::string text = "one of";
    for (const auto& shape : spec.enumerated_shapes) text += " " + join_numbers(shape);
    return text;
  }
  std::string text = "a shape within";
  for (const auto& [lower, upper] : spec.ranges) {
    text += " " + std::to_string(lower) + ".." + (upper < 0 ? "" : std::to_string(upper));
  }
  return text;
}

void check_array(const FeaturePlan& plan, const InputArray& input, std::vector<CheckFailure>& failures) {
  const TensorSpec& spec = plan.spec;
  if (spec.kind != FeatureKind::kMultiArray || !spec.dtype) {
    failures.push_back({input.name, "inputs", "a feature that is an array",
                        "the model wants a feature of type " + spec.kind_name + ", which cannot be passed"});
    return;
  }
  if (input.layout.dtype != *spec.dtype) {
    failures.push_back({input.name, "inputs", std::string("dtype ") + dtype_name(*spec.dtype),
                        std::string("dtype ") + dtype_name(input.layout.dtype)});
  }
  if (!shape_allowed(spec, input.layout.shape)) {
    failures.push_back(
        {input.name, "inputs", "shape " + allowed_shapes(spec), "shape " + join_numbers(input.layout.shape)});
  }
  if (input.lending != Lending::kRequired || input.surface) return;
  if (auto reason = lending_refusal(input)) {
    failures.push_back({input.name, "borrow", "memory that can be passed without a copy", *reason});
  }
}

std::string input_names(const Model::Impl& model) {
  std::string text;
  for (const TensorSpec& spec : model.inputs) text += (text.empty() ? "" : ", ") + spec.name;
  return text;
}

}  // namespace

const FeaturePlan* find_input_plan(const Model::Impl& model, const std::string& name) {
  for (const FeaturePlan& plan : model.input_plans) {
    if (plan.spec.name == name) return &plan;
  }
  return nullptr;
}

std::string join_numbers(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return text + "]";
}

Error failures_error(ErrorCode code, const std::string& what, std::vector<CheckFailure> failures) {
  std::string message = what;
  for (std::size_t i = 0; i < failures.size(); ++i) {
    const CheckFailure& failure = failures[i];
    message += (i == 0 ? ": " : "; ") + ("'" + failure.output + "' " + failure.check) + ": expected " +
               failure.expected + ", got " + failure.actual;
  }
  return Error(code, std::move(message), {}, std::move(failures));
}

std::vector<CheckFailure> check_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs) {
  std::vector<CheckFailure> failures;
  if (!check_enabled(Check::kInputs)) return failures;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const InputArray& input = inputs[i];
    const auto same_name = [&](const InputArray& other) { return other.name == input.name; };
    if (std::any_of(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(i), same_name)) {
      failures.push_back({input.name, "inputs", "each input once", "the name twice"});
    } else if (const FeaturePlan* plan = find_input_plan(model, input.name)) {
      check_array(*plan, input, failures);
    } else {
      failures.push_back({input.name, "inputs", "one of the model's inputs (" + input_names(model) + ")",
                          "a name the model does not have"});
    }
  }
  for (const FeaturePlan& plan : model.input_plans) {
    if (plan.spec.optional) continue;
    const auto is_this = [&](const InputArray& input) { return input.name == plan.spec.name; };
    if (std::none_of(inputs.begin(), inputs.end(), is_this)) {
      failures.push_back({plan.spec.name, "inputs", "an array", "nothing"});
    }
  }
  return failures;
}

void require_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs) {
  if (auto failures = check_inputs(model, inputs); !failures.empty()) {
    throw failures_error(ErrorCode::kContract, "[predict] the inputs do not fit the model", std::move(failures));
  }
}

}  // namespace kvbacking
