// Every way in which the simulated framework can misbehave: one table, one switchboard, one counter per fault.
// Threads: any. A prediction takes one snapshot of the switchboard and keeps it to its end.
// Ownership: snapshots are shared; counters live as long as the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace coremlsim {

enum class Fault : std::uint8_t {
  kIgnore,
  kIgnoreSameAddress,
  kSwapStorage,
  kStickyAfterCpuLock,
  kPredictionError,
  kException,
  kDisallow,
  kPaddedReturn,
  kLateRelease,
  kStage,
  kPartialWrite,
  kStale,
  kStalePrevious,
  kDirtyTail,
  kNan,
  kInf,
  kAllZero,
  kOverrun,
  kUnderrun,
  kAliasOutputs,
  kAliasInput,
  kWrongStrides,
  kWrongDtype,
  kLargerShape,
  kMissingOutput,
  kNilValue,
  kExtraOutput,
  kLockedSurface,
  kInputLock,
  kLoadError,
  kCompileError,
  kAllocationFailure,
  kHang,
  kCrash,
  kLatency,
  kOverlap,
  kCount
};

// What the names in `fault=("name",)` mean.
enum class Target : std::uint8_t { kOutput, kInput, kAllocation, kNone };
enum class Parameter : std::uint8_t { kNone, kChoice, kMilliseconds, kNth };

struct FaultInfo {
  Fault fault;
  const char* name;
  Target target;
  Parameter parameter;
  std::vector<std::string> choices;  // kChoice: the first is the default
  const char* fallback;              // default of kMilliseconds and kNth
  const char* summary;
};
const std::vector<FaultInfo>& fault_table();

// JSON object: fault name -> true | parameter | [target, ...] | {target: parameter or true}; plus "after" (predictions
// that pass unharmed first) and "times" (predictions that are harmed, then none). Replaces what was set and sets the
// counters to zero. An empty object switches everything off. Throws std::invalid_argument naming the key.
void set_faults(const std::string& json);
void apply_faults(const std::string& json);  // the same without reading the environment first (control.mm)
std::map<std::string, std::int64_t> fired_counts();

class FaultPlan;

// The switchboard as one prediction (or load, or allocation) sees it.
class Faults {
 public:
  static Faults current();         // outside predictions: "after" and "times" do not apply
  static Faults for_prediction();  // counts the prediction
  // The fault's parameter ("" without one) when it is on for this target; does not count.
  std::optional<std::string> wants(Fault fault, const std::string& target = "*") const;
  // The same, and counts it as fired.
  std::optional<std::string> fire(Fault fault, const std::string& target = "*") const;
  void fired(Fault fault) const;
  bool any() const noexcept { return plan_ != nullptr; }
  std::uint64_t serial() const noexcept;  // of the settings; 0: nothing is set
  // Blocks until the switchboard changes (hang).
  void wait_until_replaced() const;

 private:
  explicit Faults(std::shared_ptr<FaultPlan> plan) : plan_(std::move(plan)) {}
  std::shared_ptr<FaultPlan> plan_;
};

// True when the nth allocation of this kind ("surface", "pixel_buffer", "pool", "array") since the fault was set must
// fail.
bool allocation_must_fail(const char* kind);

}  // namespace coremlsim
