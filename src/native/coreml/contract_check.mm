// What can be refused before any prediction: the contract against the model's description.
#include <algorithm>

#include "core/checks.h"
#import "coreml/inputs.h"
#import "coreml/model_impl.h"
#include "kvbacking/session.h"

namespace kvbacking {
namespace {

class ContractChecker {
 public:
  ContractChecker(const Model& model, const Contract& contract) : model_(model), contract_(contract) {}

  std::vector<CheckFailure> run() {
    check_names();
    for (const ContractOutput& output : contract_.outputs) check_output(output);
    for (const std::string& name : contract_.unbacked) {
      const TensorSpec* spec = find(model_.outputs(), name);
      if (spec != nullptr && spec->kind != FeatureKind::kMultiArray) {
        fail(name, "descriptions", "a multi-array", spec->kind_name + ", which cannot be copied");
      }
    }
    for (const std::string& name : contract_.sensitive_to) {
      if (find(model_.inputs(), name) == nullptr) {
        fail(name, "sensitive_to", "one of the model's inputs (" + names(model_.inputs()) + ")", "no such input");
      }
    }
    return std::move(failures_);
  }

 private:
  static const TensorSpec* find(const std::vector<TensorSpec>& specs, const std::string& name) {
    const auto found = std::find_if(specs.begin(), specs.end(), [&](const auto& spec) { return spec.name == name; });
    return found == specs.end() ? nullptr : &*found;
  }
  static std::string names(const std::vector<TensorSpec>& specs) {
    std::string text;
    for (const TensorSpec& spec : specs) text += (text.empty() ? "" : ", ") + spec.name;
    return text;
  }
  void fail(const std::string& output, const char* check, std::string expected, std::string actual) {
    failures_.push_back({output, check, std::move(expected), std::move(actual)});
  }

  void check_names() {
    if (!check_enabled(Check::kNames)) return;
    std::vector<std::string> expected;
    for (const ContractOutput& output : contract_.outputs) expected.push_back(output.name);
    expected.insert(expected.end(), contract_.unbacked.begin(), contract_.unbacked.end());
    if (contract_.outputs.empty()) fail("", "names", "at least one output to back", "none");
    for (auto name = expected.begin(); name != expected.end(); ++name) {
      if (std::find(expected.begin(), name, *name) != name) {
        fail(*name, "names", "each output once", "the name twice");
      } else if (find(model_.outputs(), *name) == nullptr) {
        fail(*name, "names", "one of the model's outputs (" + names(model_.outputs()) + ")",
             "a name the model does not have");
      }
    }
    for (const TensorSpec& spec : model_.outputs()) {
      if (std::find(expected.begin(), expected.end(), spec.name) == expected.end()) {
        fail(spec.name, "names", "every output of the model in the contract",
             "an output that is neither backed nor listed in unbacked");
      }
    }
  }

  void check_output(const ContractOutput& output) {
    check_live(output);
    const TensorSpec* spec = find(model_.outputs(), output.name);
    if (spec == nullptr) return;  // said by check_names
    if (spec->kind != FeatureKind::kMultiArray) {
      fail(output.name, "descriptions", "a multi-array", spec->kind_name + ", which cannot have a backing");
      return;
    }
    if (spec->flexible && check_enabled(Check::kFlexible)) {
      fail(output.name, "flexible", "a fixed output shape",
           "a shape that only the prediction decides; such outputs get no backing: use Model.predict");
    } else if (output.shape != spec->shape && check_enabled(Check::kDescriptions)) {
      fail(output.name, "descriptions", "shape " + join_numbers(output.shape), "shape " + join_numbers(spec->shape));
    }
    if ((!spec->dtype || *spec->dtype != output.dtype) && check_enabled(Check::kDescriptions)) {
      fail(output.name, "descriptions", std::string("dtype ") + dtype_name(output.dtype),
           std::string("dtype ") + (spec->dtype ? dtype_name(*spec->dtype) : "of another kind"));
    }
  }

  void check_live(const ContractOutput& output) {
    const auto rank = static_cast<std::int64_t>(output.shape.size());
    if (contract_.axis < 0 || contract_.axis >= rank) {
      fail(output.name, "axis", "an axis below " + std::to_string(rank), std::to_string(contract_.axis));
      return;
    }
    const std::int64_t length = output.shape[static_cast<std::size_t>(contract_.axis)];
    if (contract_.live < 0 || contract_.live > length) {
      fail(output.name, "live", "a live length of 0 to " + std::to_string(length), std::to_string(contract_.live));
    }
  }

  const Model& model_;
  const Contract& contract_;
  std::vector<CheckFailure> failures_;
};

}  // namespace

std::vector<CheckFailure> check_contract(const Model& model, const Contract& contract) {
  return ContractChecker(model, contract).run();
}

}  // namespace kvbacking
