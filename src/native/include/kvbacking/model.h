// A loaded Core ML model: compile into a cache, load, describe. No framework type shows.
// Threads: load and the accessors from any thread, without the GIL; predictions on one Model are serialised by
// its own mutex (session.h takes it).
// Ownership: shared_ptr; sessions and predictions keep their model alive, never the other way round.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking {

enum class ComputeUnits { kCpuOnly, kCpuAndGpu, kAll, kCpuAndNeuralEngine };

enum class FeatureKind { kMultiArray, kImage, kState, kOther };

struct TensorSpec {
  std::string name;
  FeatureKind kind = FeatureKind::kMultiArray;
  std::string kind_name;            // "multi_array", "image", "state", "int64", "dictionary", ...
  std::vector<std::int64_t> shape;  // empty for an output without a fixed shape
  std::optional<DType> dtype;       // empty where the framework's type is not one of ours
  bool flexible = false;            // the shape is enumerated, ranged or unknown
  bool optional = false;
  std::vector<std::vector<std::int64_t>> enumerated_shapes;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;  // per dimension lower, upper (-1: unbounded)
};

struct LoadOptions {
  ComputeUnits compute_units = ComputeUnits::kAll;
  std::optional<std::string> function;  // macOS 15; empty: the default function
  // Where a compiled form is kept: `<cache_dir>/<cache_key>.mlmodelc`, written atomically. Empty key: compiled to a
  // temporary place that the Model removes when it dies.
  std::string cache_dir;
  std::string cache_key;
};

class Model {
 public:
  // .mlpackage, .mlmodel (compiled first) or .mlmodelc. Throws Error(kModel) with the NSError verbatim, and
  // Error(kUnsupportedPlatform) in a child after fork() or for `function` before macOS 15.
  static std::shared_ptr<Model> load(const std::string& path, const LoadOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // What accessors refer to lives as long as the Model; none of them throws.
  const std::vector<TensorSpec>& inputs() const noexcept;   // sorted by name
  const std::vector<TensorSpec>& outputs() const noexcept;  // sorted by name
  const std::vector<TensorSpec>& states() const noexcept;   // sorted by name; empty before macOS 15
  const std::string& compiled_path() const noexcept;
  ComputeUnits compute_units() const noexcept;
  // Functions of a multi-function package; empty where the system cannot list them (before macOS 15) or there is one.
  // Throws Error(kModel) with the NSError verbatim.
  std::vector<std::string> functions() const;
  // Frees the input buffers that nothing holds now; the next predictions make new ones.
  void release_idle_inputs() noexcept;

  struct Impl;  // Objective-C++ side, coreml/model_impl.h
  Impl& impl() const noexcept { return *impl_; }

 private:
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbacking
