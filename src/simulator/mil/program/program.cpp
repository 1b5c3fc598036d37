#include "mil/program/program.h"

#include <algorithm>
#include <numeric>

#include "mil/kernels/kernels.h"

namespace coremlsim::mil {
namespace {

constexpr std::size_t kMaxPlans = 8;

}  // namespace

std::shared_ptr<const Program> Program::create(std::shared_ptr<const Package> package, const ProgramOptions& options) {
  auto impl = std::dynamic_pointer_cast<const PackageImpl>(std::move(package));
  if (!impl) throw ModelError("[mil] Program::create needs a package of this engine");
  (void)kernels();  // a wrong choice is told here, and not by a worker thread
  return std::make_shared<ProgramImpl>(std::move(impl), options);
}

ProgramImpl::ProgramImpl(std::shared_ptr<const PackageImpl> package, const ProgramOptions& options)
    : package_(std::move(package)),
      description_(package_->description(options.function.empty() ? package_->default_function() : options.function)),
      numerics_(options.numerics),
      graph_(*package_, package_->function(description_.name)),
      pool_(options.threads) {
  // Plan for the default shapes now, so that a wrong program fails here and not in the first prediction.
  InputShapes shapes;
  for (std::size_t i = 0; i < graph_.inputs.size(); ++i) shapes.push_back(default_shape(i));
  (void)plan_for(shapes);
}

Shape ProgramImpl::default_shape(std::size_t input) const {
  const GraphValue& value = graph_.values[static_cast<std::size_t>(graph_.inputs[input])];
  for (const FeatureDescription& feature : description_.inputs) {
    if (feature.name == value.name && feature.kind == FeatureKind::kMultiArray && !feature.shape.empty()) {
      return feature.shape;
    }
  }
  Shape shape = value.type.tensor.dims;
  std::replace_if(shape.begin(), shape.end(), [](std::int64_t d) { return d < 0; }, 1);
  return shape;
}

std::shared_ptr<const Plan> ProgramImpl::plan_for(const InputShapes& shapes) const {
  const std::lock_guard lock(mutex_);
  if (needs_values_) return nullptr;
  const auto it = std::find_if(plans_.begin(), plans_.end(), [&](const auto& entry) { return entry.first == shapes; });
  if (it != plans_.end()) {
    std::rotate(it, it + 1, plans_.end());
    return plans_.back().second;
  }
  try {
    Planner planner(graph_, constants_, pool_, numerics_);
    auto plan = std::make_shared<const Plan>(planner.plan(shapes));
    if (plans_.size() == kMaxPlans) plans_.erase(plans_.begin());
    plans_.emplace_back(shapes, plan);
    return plan;
  } catch (const NeedsValue&) {
    needs_values_ = true;
    return nullptr;
  }
}

std::vector<OperationInfo> ProgramImpl::operations() const {
  std::vector<double> costs(graph_.nodes.size(), 1.0);
  {
    const std::lock_guard lock(mutex_);
    if (!plans_.empty()) costs = plans_.back().second->node_cost;
  }
  const double total = std::max(std::accumulate(costs.begin(), costs.end(), 0.0), 1e-30);
  std::vector<OperationInfo> infos;
  std::size_t node = 0;
  for (const Operation& op : graph_.function.operations) {
    OperationInfo info;
    info.type = std::string(op.type);
    if (!op.outputs.empty()) info.name = std::string(op.outputs.front().name);
    for (const auto& [argument, bindings] : op.inputs) {
      auto& [name, bound] = info.inputs.emplace_back(std::string(argument), std::vector<std::string>{});
      for (const Binding& binding : bindings) bound.emplace_back(binding.name);
    }
    for (const NamedType& output : op.outputs) info.outputs.emplace_back(output.name);
    if (is_node(op)) info.cost = costs[node++] / total;
    infos.push_back(std::move(info));
  }
  return infos;
}

std::unique_ptr<Run> ProgramImpl::new_run() const { return std::make_unique<RunImpl>(shared_from_this()); }

}  // namespace coremlsim::mil
