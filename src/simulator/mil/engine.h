// Loads a real .mlpackage and executes its MIL program on the CPU. Pure C++: no Foundation, no Core ML type.
// Threads: Package and Program are immutable after creation and may be shared; a Run is used by one thread at a time.
// Ownership: shared_ptr; a Program keeps its Package (and the mapped weights) alive; tensors that a Run returns live
// until the next run or the Run's death.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace coremlsim::mil {

// Which file, which op, what is wrong; the framework turns it into an NSError.
class ModelError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class DataType : std::uint8_t {
  kBool,
  kFloat16,
  kFloat32,
  kFloat64,
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kString,
  kOther
};
std::size_t byte_width(DataType type) noexcept;

enum class FeatureKind : std::uint8_t {
  kMultiArray,
  kImage,
  kState,
  kInt64,
  kDouble,
  kString,
  kDictionary,
  kSequence,
  kOther
};

struct FeatureDescription {
  std::string name;
  FeatureKind kind = FeatureKind::kMultiArray;
  DataType dtype = DataType::kFloat32;  // of the description (what the caller sees)
  std::vector<std::int64_t> shape;      // default shape; empty when the output has none
  std::vector<std::vector<std::int64_t>> enumerated_shapes;
  std::vector<std::pair<std::int64_t, std::int64_t>> shape_ranges;  // lower, upper; upper -1: unbounded
  bool optional = false;
  double default_value = 0.0;  // what a missing optional input is filled with
};

struct FunctionDescription {
  std::string name;
  std::vector<FeatureDescription> inputs, outputs, states;
};

// A parsed, validated package. Every offset, size, rank and path was checked; nothing was executed.
class Package {
 public:
  // A .mlpackage directory, a compiled copy of one (.mlmodelc made by the simulator) or a .mlmodel file.
  static std::shared_ptr<const Package> open(const std::string& path);
  virtual ~Package() = default;
  virtual int specification_version() const = 0;
  virtual const std::vector<FunctionDescription>& functions() const = 0;
  virtual const std::string& default_function() const = 0;  // "main" in a package without functions
  virtual bool is_multi_function() const = 0;
};

enum class Numerics : std::uint8_t {
  kFloat32,  // everything in fp32, one rounding at the outputs (default)
  kFloat16,  // rounds to fp16 after every op, as a device would
};

struct ProgramOptions {
  std::string function;  // empty: the default one
  Numerics numerics = Numerics::kFloat32;
  int threads = 0;  // 0: the libraries' own choice
};

// Memory of the caller, any strides (in elements).
struct TensorView {
  DataType dtype = DataType::kFloat32;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  void* data = nullptr;
};

// One op of the program as MLModelStructure shows it.
struct OperationInfo {
  std::string type, name;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs;  // argument -> bound names
  std::vector<std::string> outputs;
  double cost = 0.0;  // share of the total, 0..1
};

class Run;

class Program {
 public:
  static std::shared_ptr<const Program> create(std::shared_ptr<const Package> package, const ProgramOptions& options);
  virtual ~Program() = default;
  virtual const FunctionDescription& description() const = 0;
  virtual std::vector<OperationInfo> operations() const = 0;
  virtual std::unique_ptr<Run> new_run() const = 0;  // scratch memory for one thread
};

class Run {
 public:
  virtual ~Run() = default;
  // Executes. `states` are read and updated in place (dense, the description's dtype). Returned tensors are in the
  // engine's compute type, dense, owned by the Run. A missing optional input is simply absent from `inputs`. Throws
  // ModelError naming the op and the package.
  virtual std::map<std::string, TensorView> execute(const std::map<std::string, TensorView>& inputs,
                                                    const std::map<std::string, TensorView>& states) = 0;
};

// Converts (round to nearest even, saturating for integers) and re-strides one tensor into another of equal shape.
void convert(const TensorView& source, const TensorView& destination);

}  // namespace coremlsim::mil
