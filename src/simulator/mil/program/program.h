// The Program and the Run behind the public interface.
// Threads: a Program is safe everywhere (its plan cache has a lock); a Run belongs to one thread at a time.
// Ownership: a Program keeps its Package alive, a Run its Program.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "mil/engine.h"
#include "mil/package/package.h"
#include "mil/program/constant_pool.h"
#include "mil/program/graph.h"
#include "mil/program/plan.h"
#include "mil/program/planner.h"
#include "mil/program/thread_pool.h"

namespace coremlsim::mil {

class ProgramImpl final : public Program, public std::enable_shared_from_this<ProgramImpl> {
 public:
  ProgramImpl(std::shared_ptr<const PackageImpl> package, const ProgramOptions& options);
  const FunctionDescription& description() const override { return description_; }
  std::vector<OperationInfo> operations() const override;
  std::unique_ptr<Run> new_run() const override;

  const Graph& graph() const { return graph_; }
  Numerics numerics() const { return numerics_; }
  ThreadPool& pool() const { return pool_; }
  ConstantPool& constants() const { return constants_; }
  // The plan for these shapes; null when only an eager run can tell the shapes.
  std::shared_ptr<const Plan> plan_for(const InputShapes& shapes) const;
  Shape default_shape(std::size_t input) const;  // of Graph::inputs

 private:
  std::shared_ptr<const PackageImpl> package_;
  const FunctionDescription& description_;
  Numerics numerics_;
  Graph graph_;
  mutable ConstantPool constants_;
  mutable ThreadPool pool_;
  mutable std::mutex mutex_;                                                        // guards the two below
  mutable std::vector<std::pair<InputShapes, std::shared_ptr<const Plan>>> plans_;  // most recently used last
  mutable bool needs_values_ = false;
};

class RunImpl final : public Run {
 public:
  explicit RunImpl(std::shared_ptr<const ProgramImpl> program);
  std::map<std::string, TensorView> execute(const std::map<std::string, TensorView>& inputs,
                                            const std::map<std::string, TensorView>& states) override;

 private:
  struct Bound {  // one of Graph::inputs
    const TensorView* view = nullptr;
    double fill = 0.0;  // when the view is absent
    Shape shape;
  };
  std::vector<Bound> bind(const std::map<std::string, TensorView>& inputs,
                          const std::map<std::string, TensorView>& states) const;
  void prepare(std::shared_ptr<const Plan> plan);
  void* address_of(const Plan& plan, const SlotPlace& place) const;
  void execute_plan(const std::vector<Bound>& bound);
  void execute_eagerly(const std::vector<Bound>& bound, const InputShapes& shapes);
  std::map<std::string, TensorView> results(const Plan& plan, const Frame& frame) const;

  std::shared_ptr<const ProgramImpl> program_;
  std::shared_ptr<const Plan> plan_;
  AlignedBuffer arena_;
  std::unique_ptr<Frame> frame_;
  Plan eager_plan_;                    // of the last eager run: owns its results
  std::vector<AlignedBuffer> staged_;  // inputs of an eager run
};

}  // namespace coremlsim::mil
