// The Objective-C++ side of a Model.
// Threads: everything but the mutex and the pools is immutable after load. Whoever predicts holds `prediction_mutex`.
// Ownership: owns the MLModel, its descriptions and the temporary compiled form.
#pragma once

#import <CoreML/CoreML.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coreml/counters.h"
#include "coreml/input_pool.h"
#include "coreml/multi_array.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/model.h"

namespace kvbacking {

// A description and what is needed again on every prediction, made once.
struct FeaturePlan {
  TensorSpec spec;
  RetainPtr<NSString*> name;
  RetainPtr<MLFeatureDescription*> description;
  std::optional<Layout> dense;  // of a fixed shape and a dtype of ours
  ArrayGeometry geometry;       // of `dense`
  std::unique_ptr<InputPool> pool = std::make_unique<InputPool>();
};

// A directory that is removed with this object (unless a child made by fork() owns the copy).
class TemporaryDirectory {
 public:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

struct Model::Impl {
  std::vector<TensorSpec> inputs, outputs, states;
  std::string compiled_path;
  ComputeUnits compute_units = ComputeUnits::kAll;
  std::optional<std::string> function;
  std::unique_ptr<TemporaryDirectory> temporary;
  RetainPtr<MLModel*> model;
  RetainPtr<MLPredictionOptions*> plain_options;  // nothing proposed
  std::vector<FeaturePlan> input_plans;           // as `inputs`
  std::map<std::string, FeaturePlan> output_plans;
  std::mutex prediction_mutex;
  Counted<Counter::kModel> counted;
};

// model_description.mm
TensorSpec tensor_spec(NSString* name, MLFeatureDescription* description);
MLComputeUnits framework_compute_units(ComputeUnits units) noexcept;
RetainPtr<MLModelConfiguration*> model_configuration(ComputeUnits units, const std::optional<std::string>& function);

// model_compile.mm. The compiled form of `path`, and the temporary directory when nobody caches it.
struct CompiledModel {
  std::string path;
  std::unique_ptr<TemporaryDirectory> temporary;
  bool from_cache = false;
};
CompiledModel compiled_model(const std::string& path, const LoadOptions& options, bool use_cached);

}  // namespace kvbacking
