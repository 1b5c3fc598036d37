#import "coreml/session_plan.h"

#include <algorithm>

#import "coreml/inputs.h"
#import "coreml/model_impl.h"
#import "coreml/nserror.h"
#import "coreml/owned_surface_impl.h"

namespace kvbacking {
namespace {

void check_surfaces(const Contract& contract, std::vector<CheckFailure>& failures) {
  for (const ContractOutput& output : contract.outputs) {
    if (auto reason = surface_refusal({output.dtype, output.shape})) {
      failures.push_back({output.name, "surface_limits", "an output that fits a surface", *reason});
    }
  }
}

void check_external_set(const Contract& contract, const std::vector<ExternalStorage>& set, std::size_t number,
                        std::vector<CheckFailure>& failures) {
  const std::string place = " in set " + std::to_string(number);
  for (const ContractOutput& output : contract.outputs) {
    const auto named = [&](const ExternalStorage& storage) { return storage.output == output.name; };
    const auto found = std::find_if(set.begin(), set.end(), named);
    if (found == set.end() || std::find_if(found + 1, set.end(), named) != set.end()) {
      failures.push_back({output.name, "external", "storage for it exactly once" + place,
                          found == set.end() ? "none" : "more than one"});
      continue;
    }
    if (found->layout.dtype != output.dtype || found->layout.shape != output.shape) {
      failures.push_back({output.name, "external", Layout::dense(output.dtype, output.shape).describe() + place,
                          found->layout.describe()});
    } else if (!found->surface && (found->data == nullptr || found->layout.overlaps_itself())) {
      failures.push_back({output.name, "external", "memory whose elements are distinct" + place,
                          found->data == nullptr ? "no address" : found->layout.describe()});
    }
  }
}

MemoryRange range_of(const ExternalStorage& storage) {
  if (storage.surface) return storage.surface->impl().surface->range(storage.output);
  const auto begin = reinterpret_cast<std::uintptr_t>(storage.data);
  return {storage.output, begin, begin + storage.layout.span_byte_count(), 0};
}

void check_external(const Contract& contract, const SessionOptions& options, std::vector<CheckFailure>& failures) {
  if (options.external.size() != options.depth) {
    failures.push_back({"", "external", std::to_string(options.depth) + " sets of storage (depth)",
                        std::to_string(options.external.size())});
  }
  for (std::size_t i = 0; i < options.external.size(); ++i) {
    check_external_set(contract, options.external[i], i, failures);
  }
  if (!failures.empty()) return;  // spans of refused layouts mean nothing
  MemoryRanges ranges;
  for (const auto& set : options.external) {
    for (const ExternalStorage& storage : set) {
      const MemoryRange range = range_of(storage);
      for (const MemoryRange& other : ranges) {
        if (!range.overlaps(other)) continue;
        failures.push_back({range.name, "distinct", "storage of its own", "memory shared with " + other.name});
      }
      ranges.push_back(range);
    }
  }
}

OutputPlan plan_output(const Model::Impl& model, const std::string& name, const ContractOutput* backed) {
  OutputPlan plan;
  plan.name = name;
  plan.backed = backed != nullptr;
  if (const auto found = model.output_plans.find(name); found != model.output_plans.end()) {
    plan.description = found->second.description;
    if (!found->second.spec.flexible) plan.dense = found->second.dense;
  }
  if (backed) plan.dense = Layout::dense(backed->dtype, backed->shape);
  if (plan.dense) plan.geometry = ArrayGeometry(*plan.dense);
  return plan;
}

}  // namespace

std::shared_ptr<const SessionPlan> make_session_plan(std::shared_ptr<Model> model, Contract contract,
                                                     SessionOptions options) {
  if (options.depth == 0) throw Error(ErrorCode::kInvalidArgument, "[session.create] depth must be at least 1, got 0");
  auto failures = check_contract(*model, contract);
  if (options.mechanism == Mechanism::kSurface || options.mechanism == Mechanism::kPool) {
    check_surfaces(contract, failures);
  }
  if (options.mechanism == Mechanism::kExternal) check_external(contract, options, failures);
  if (!failures.empty()) {
    throw failures_error(ErrorCode::kContract, "[session.create] the contract does not fit", std::move(failures));
  }
  auto plan = std::make_shared<SessionPlan>();
  for (const ContractOutput& output : contract.outputs) {
    plan->outputs.push_back(plan_output(model->impl(), output.name, &output));
  }
  plan->backed_count = plan->outputs.size();
  for (const std::string& name : contract.unbacked) {
    plan->outputs.push_back(plan_output(model->impl(), name, nullptr));
  }
  for (const OutputPlan& output : plan->outputs) plan->keys.push_back(retain(to_nsstring(output.name)));
  plan->model = std::move(model);
  plan->contract = std::move(contract);
  plan->options = std::move(options);
  return plan;
}

}  // namespace kvbacking
