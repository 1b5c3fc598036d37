#include "framework/faults.h"

#import <Foundation/Foundation.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "framework/control.h"
#include "framework/json.h"

namespace coremlsim {
namespace {

constexpr std::size_t kFaultCount = static_cast<std::size_t>(Fault::kCount);
constexpr const char* kAllocationKinds[] = {"surface", "pixel_buffer", "pool", "array"};

}  // namespace

const std::vector<FaultInfo>& fault_table() {
  using enum Fault;
  static const auto* table = new std::vector<FaultInfo>{
      {kIgnore, "ignore", Target::kOutput, Parameter::kNone, {}, "", "the backing is ignored, a new array returns"},
      {kIgnoreSameAddress,
       "ignore_same_address",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "a new object over the backing's bytes returns"},
      {kSwapStorage,
       "swap_storage",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the proposed object returns with other storage"},
      {kStickyAfterCpuLock,
       "sticky_after_cpu_lock",
       Target::kOutput,
       Parameter::kChoice,
       {"array", "buffer"},
       "",
       "once locked by the CPU, the array (or its pixel buffer) cannot be proposed again"},
      {kPredictionError,
       "prediction_error",
       Target::kNone,
       Parameter::kNone,
       {},
       "",
       "the prediction gives an NSError"},
      {kException, "exception", Target::kNone, Parameter::kChoice, {"predict", "load"}, "", "an NSException is raised"},
      {kDisallow, "disallow", Target::kOutput, Parameter::kNone, {}, "", "isAllowedValue: answers NO"},
      {kPaddedReturn,
       "padded_return",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the backing is ignored; rows and planes of the returned array are padded"},
      {kLateRelease,
       "late_release",
       Target::kNone,
       Parameter::kMilliseconds,
       {},
       "1000",
       "inputs, outputs and backings stay retained after the prediction"},
      {kStage,
       "stage",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "runs into a temporary and copies into the backing: identity is true all the same"},
      {kPartialWrite,
       "partial_write",
       Target::kOutput,
       Parameter::kChoice,
       {"tail", "head", "middle", "one_row", "one_element"},
       "",
       "the named part is not written"},
      {kStale, "stale", Target::kOutput, Parameter::kNone, {}, "", "nothing is written"},
      {kStalePrevious,
       "stale_previous",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the values of the model's previous prediction are written again"},
      {kDirtyTail,
       "dirty_tail",
       Target::kOutput,
       Parameter::kChoice,
       {"byte", "negative_zero"},
       "",
       "the last element is the smallest subnormal, or -0.0"},
      {kNan, "nan", Target::kOutput, Parameter::kChoice, {"first", "middle", "last"}, "", "one element is NaN"},
      {kInf, "inf", Target::kOutput, Parameter::kChoice, {"first", "middle", "last"}, "", "one element is infinite"},
      {kAllZero, "all_zero", Target::kOutput, Parameter::kNone, {}, "", "the output is all zero"},
      {kOverrun,
       "overrun",
       Target::kOutput,
       Parameter::kChoice,
       {"end", "row_gaps"},
       "",
       "bytes behind the payload, or between its rows, are overwritten"},
      {kUnderrun, "underrun", Target::kOutput, Parameter::kNone, {}, "", "bytes before the payload are overwritten"},
      {kAliasOutputs,
       "alias_outputs",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the chosen outputs share the storage of the first of them"},
      {kAliasInput, "alias_input", Target::kOutput, Parameter::kNone, {}, "", "the output lies in an input's storage"},
      {kWrongStrides, "wrong_strides", Target::kOutput, Parameter::kNone, {}, "", "the strides returned are wrong"},
      {kWrongDtype, "wrong_dtype", Target::kOutput, Parameter::kNone, {}, "", "the data type returned is wrong"},
      {kLargerShape, "larger_shape", Target::kOutput, Parameter::kNone, {}, "", "the shape returned is too large"},
      {kMissingOutput, "missing_output", Target::kOutput, Parameter::kNone, {}, "", "the output's name is missing"},
      {kNilValue,
       "nil_value",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the output's name is there, its value is nil"},
      {kExtraOutput, "extra_output", Target::kNone, Parameter::kNone, {}, "", "an output that nobody declared returns"},
      {kLockedSurface,
       "locked_surface",
       Target::kOutput,
       Parameter::kNone,
       {},
       "",
       "the backing's pixel buffer stays locked after the prediction"},
      {kInputLock,
       "input_lock",
       Target::kInput,
       Parameter::kNone,
       {},
       "",
       "an input's pixel buffer stays locked after the prediction"},
      {kLoadError, "load_error", Target::kNone, Parameter::kNone, {}, "", "loading gives an NSError"},
      {kCompileError, "compile_error", Target::kNone, Parameter::kNone, {}, "", "compiling gives an NSError"},
      {kAllocationFailure,
       "allocation_failure",
       Target::kAllocation,
       Parameter::kNth,
       {},
       "1",
       "the nth allocation of a surface, pixel_buffer, pool or array fails"},
      {kHang, "hang", Target::kNone, Parameter::kNone, {}, "", "the prediction does not return while this is set"},
      {kCrash, "crash", Target::kNone, Parameter::kChoice, {"segv", "abort"}, "", "the process dies in the prediction"},
      {kLatency, "latency", Target::kNone, Parameter::kMilliseconds, {}, "100", "the prediction takes longer"},
      {kOverlap,
       "overlap",
       Target::kNone,
       Parameter::kNone,
       {},
       "",
       "two predictions on one model at once give an NSError (they are always counted as a violation)"},
  };
  return *table;
}

class FaultPlan {
 public:
  std::array<std::map<std::string, std::string>, kFaultCount> by_target;
  std::int64_t after = 0;
  std::int64_t times = -1;  // -1: no end
  std::atomic<std::int64_t> predictions{0};
  std::array<std::atomic<std::int64_t>, 4> allocations{};
};

namespace {

struct Switchboard {
  std::mutex mutex;
  std::condition_variable changed;
  std::shared_ptr<FaultPlan> plan;  // null: nothing is set
  std::array<std::atomic<std::int64_t>, kFaultCount> fired{};
};
Switchboard& switchboard() {
  static auto* board = new Switchboard;
  return *board;
}

std::string parse_parameter(const FaultInfo& info, id value) {
  const std::string name = info.name;
  if (is_json_bool(value) && [static_cast<NSNumber*>(value) boolValue]) {
    return info.parameter == Parameter::kChoice ? info.choices.front() : info.fallback;
  }
  switch (info.parameter) {
    case Parameter::kNone:
      throw std::invalid_argument(name + ": takes no parameter, expected true");
    case Parameter::kChoice: {
      const std::string text = json_string(value, name);
      std::string known;
      for (const std::string& choice : info.choices) {
        if (choice == text) {
          return text;
        }
        known += (known.empty() ? "" : ", ") + choice;
      }
      throw std::invalid_argument(name + ": \"" + text + "\" is not one of " + known);
    }
    case Parameter::kMilliseconds:
      return std::to_string(json_integer(value, name, 0, 3600 * 1000));
    case Parameter::kNth:
      return std::to_string(json_integer(value, name, 1, 1 << 30));
  }
  throw std::invalid_argument(name);
}

void add_target(const FaultInfo& info, std::map<std::string, std::string>& targets, id key, id value) {
  const std::string target = json_string(key, info.name);
  if (info.target == Target::kNone && target != "*") {
    throw std::invalid_argument(std::string(info.name) + ": applies to no single output, expected true or a parameter");
  }
  if (info.target == Target::kAllocation) {
    bool known = target == "*";
    for (const char* kind : kAllocationKinds) {
      known = known || target == kind;
    }
    if (!known) {
      throw std::invalid_argument(std::string(info.name) + ": no allocation is named \"" + target + "\"");
    }
  }
  targets[target] = parse_parameter(info, value);
}

void parse_fault(const FaultInfo& info, std::map<std::string, std::string>& targets, id value) {
  if ([value isKindOfClass:[NSDictionary class]]) {
    for (id key in static_cast<NSDictionary*>(value)) {
      add_target(info, targets, key, [static_cast<NSDictionary*>(value) objectForKey:key]);
    }
  } else if ([value isKindOfClass:[NSArray class]]) {
    for (id key in static_cast<NSArray*>(value)) {
      add_target(info, targets, key, [NSNumber numberWithBool:YES]);
    }
  } else if (is_json_bool(value) && ![static_cast<NSNumber*>(value) boolValue]) {
    return;
  } else {
    add_target(info, targets, @"*", value);
  }
}

}  // namespace

void set_faults(const std::string& json) {
  environment_error();  // what the environment asks for must not come later and replace this
  apply_faults(json);
}

void apply_faults(const std::string& json) {
  std::shared_ptr<FaultPlan> plan;
  @autoreleasepool {
    NSDictionary* values = parse_json_object(json);
    auto parsed = std::make_shared<FaultPlan>();
    bool any = false;
    for (NSString* key in values) {
      const std::string name = [key UTF8String];
      id value = [values objectForKey:key];
      if (name == "after" || name == "times") {
        (name == "after" ? parsed->after : parsed->times) = json_integer(value, name, 0, 1 << 30);
        continue;
      }
      bool known = false;
      for (const FaultInfo& info : fault_table()) {
        if (name == info.name) {
          auto& targets = parsed->by_target[static_cast<std::size_t>(info.fault)];
          parse_fault(info, targets, value);
          known = true;
          any = any || !targets.empty();
        }
      }
      if (!known) {
        throw std::invalid_argument("no fault is named \"" + name + "\"");
      }
    }
    if (any) {
      plan = std::move(parsed);
    }
  }
  Switchboard& board = switchboard();
  const std::lock_guard lock(board.mutex);
  board.plan = std::move(plan);
  for (auto& count : board.fired) {
    count = 0;
  }
  board.changed.notify_all();
}

std::map<std::string, std::int64_t> fired_counts() {
  std::map<std::string, std::int64_t> counts;
  for (const FaultInfo& info : fault_table()) {
    counts[info.name] = switchboard().fired[static_cast<std::size_t>(info.fault)].load();
  }
  return counts;
}

Faults Faults::current() {
  environment_error();
  Switchboard& board = switchboard();
  const std::lock_guard lock(board.mutex);
  return Faults(board.plan);
}

Faults Faults::for_prediction() {
  Faults faults = current();
  if (faults.plan_ != nullptr) {
    const std::int64_t index = faults.plan_->predictions++;
    const bool before = index < faults.plan_->after;
    const bool past = faults.plan_->times >= 0 && index >= faults.plan_->after + faults.plan_->times;
    if (before || past) {
      faults.plan_ = nullptr;
    }
  }
  return faults;
}

std::optional<std::string> Faults::wants(Fault fault, const std::string& target) const {
  if (plan_ == nullptr) {
    return std::nullopt;
  }
  const auto& targets = plan_->by_target[static_cast<std::size_t>(fault)];
  auto found = targets.find(target);
  if (found == targets.end()) {
    found = targets.find("*");
  }
  return found == targets.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::optional<std::string> Faults::fire(Fault fault, const std::string& target) const {
  auto parameter = wants(fault, target);
  if (parameter) {
    fired(fault);
  }
  return parameter;
}

void Faults::fired(Fault fault) const { ++switchboard().fired[static_cast<std::size_t>(fault)]; }

void Faults::wait_until_replaced() const {
  Switchboard& board = switchboard();
  std::unique_lock lock(board.mutex);
  board.changed.wait(lock, [&] { return board.plan != plan_; });
}

bool allocation_must_fail(const char* kind) {
  environment_error();
  Switchboard& board = switchboard();
  const std::lock_guard lock(board.mutex);
  if (board.plan == nullptr) {
    return false;
  }
  const auto& targets = board.plan->by_target[static_cast<std::size_t>(Fault::kAllocationFailure)];
  auto found = targets.find(kind);
  if (found == targets.end()) {
    found = targets.find("*");
  }
  if (found == targets.end()) {
    return false;
  }
  for (std::size_t i = 0; i < board.plan->allocations.size(); ++i) {
    if (std::string(kAllocationKinds[i]) == kind && ++board.plan->allocations[i] == std::stoll(found->second)) {
      ++board.fired[static_cast<std::size_t>(Fault::kAllocationFailure)];
      return true;
    }
  }
  return false;
}

}  // namespace coremlsim
