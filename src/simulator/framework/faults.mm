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

class FaultPlan {
 public:
  std::array<std::map<std::string, std::string>, kFaultCount> by_target;
  const std::uint64_t serial = next_serial();
  std::int64_t after = 0;
  std::int64_t times = -1;  // -1: no end
  std::atomic<std::int64_t> predictions{0};
  std::array<std::atomic<std::int64_t>, 4> allocations{};

 private:
  static std::uint64_t next_serial() {
    static std::atomic<std::uint64_t> last{0};
    return ++last;
  }
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

std::uint64_t Faults::serial() const noexcept { return plan_ == nullptr ? 0 : plan_->serial; }

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
