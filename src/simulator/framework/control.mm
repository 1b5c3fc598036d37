#include "framework/control.h"

#import <Foundation/Foundation.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <stdexcept>

#include "framework/faults.h"
#include "framework/json.h"

namespace coremlsim {
namespace {

std::mutex& options_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
Options& stored_options() {
  static auto* stored = new Options;
  return *stored;
}

const char* numerics_name(mil::Numerics numerics) { return numerics == mil::Numerics::kFloat16 ? "fp16" : "fp32"; }

mil::Numerics parse_numerics(id value, const std::string& key) {
  const std::string text = json_string(value, key);
  if (text == "fp32") {
    return mil::Numerics::kFloat32;
  }
  if (text == "fp16") {
    return mil::Numerics::kFloat16;
  }
  throw std::invalid_argument(key + ": expected \"fp32\" or \"fp16\", got \"" + text + "\"");
}

// The order is that of MLComputeUnits.
constexpr const char* kUnitNames[] = {"cpu_only", "cpu_and_gpu", "all", "cpu_and_ne"};

void set_numerics(Options& options, id value) {
  if (![value isKindOfClass:[NSDictionary class]]) {
    options.numerics.fill(parse_numerics(value, "numerics"));
    return;
  }
  for (NSString* key in static_cast<NSDictionary*>(value)) {
    bool known = false;
    for (std::size_t i = 0; i < options.numerics.size(); ++i) {
      if (std::string([key UTF8String]) == kUnitNames[i]) {
        options.numerics[i] = parse_numerics([static_cast<NSDictionary*>(value) objectForKey:key], "numerics");
        known = true;
      }
    }
    if (!known) {
      throw std::invalid_argument("numerics: no compute unit is named \"" + std::string([key UTF8String]) + "\"");
    }
  }
}

// One row per option: how it is read from JSON and how it is shown.
struct OptionEntry {
  const char* name;
  std::function<void(Options&, id)> set;
  std::function<id(const Options&)> get;
};

template <class T>
OptionEntry flag(const char* name, T Options::* member) {
  return {name, [=](Options& o, id value) { o.*member = json_bool(value, name); },
          [=](const Options& o) { return static_cast<id>([NSNumber numberWithBool:o.*member]); }};
}
template <class T>
OptionEntry number(const char* name, T Options::* member, std::int64_t low, std::int64_t high) {
  return {name, [=](Options& o, id value) { o.*member = static_cast<T>(json_integer(value, name, low, high)); },
          [=](const Options& o) {
            return static_cast<id>([NSNumber numberWithLongLong:static_cast<long long>(o.*member)]);
          }};
}

const std::vector<OptionEntry>& option_table() {
  static const auto* table = new std::vector<OptionEntry>{
      number("row_alignment", &Options::row_alignment, 1, 1 << 16),
      number("row_padding", &Options::row_padding, 0, 1 << 16),
      number("surface_max_extent", &Options::surface_max_extent, 1, 1 << 24),
      flag("pad_framework_outputs", &Options::pad_framework_outputs),
      flag("framework_surfaces", &Options::framework_surfaces),
      flag("backings_in_batch", &Options::backings_in_batch),
      flag("half_buffers_for_float32", &Options::half_buffers_for_float32),
      flag("mutable_bytes_swap", &Options::mutable_bytes_swap),
      flag("foreign_release_thread", &Options::foreign_release_thread),
      number("input_hold_ms", &Options::input_hold_ms, 0, 60000),
      flag("poison", &Options::poison),
      number("threads", &Options::threads, 0, 1024),
      {"numerics", set_numerics,
       [](const Options& o) {
         NSMutableDictionary* by_unit = [NSMutableDictionary dictionary];
         for (std::size_t i = 0; i < o.numerics.size(); ++i) {
           [by_unit setObject:[NSString stringWithUTF8String:numerics_name(o.numerics[i])]
                       forKey:[NSString stringWithUTF8String:kUnitNames[i]]];
         }
         return static_cast<id>(by_unit);
       }},
      {"hide_api", [](Options&, id value) { hide_api(json_string(value, "hide_api")); },
       [](const Options&) { return static_cast<id>([NSString stringWithUTF8String:hidden_api().c_str()]); }},
      {"backed_numerics",
       [](Options& o, id value) {
         o.backed_numerics = [value isKindOfClass:[NSNull class]]
                                 ? std::optional<mil::Numerics>()
                                 : std::optional<mil::Numerics>(parse_numerics(value, "backed_numerics"));
       },
       [](const Options& o) {
         return o.backed_numerics ? static_cast<id>([NSString stringWithUTF8String:numerics_name(*o.backed_numerics)])
                                  : static_cast<id>([NSNull null]);
       }},
  };
  return *table;
}

constexpr const char* kLiveNames[] = {"array", "surface", "pixel_buffer", "pool", "model", "state"};
std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(Live::kCount)> live_table;

constexpr const char* kViolationNames[] = {"overlap",       "state_overlap",  "state_access",
                                           "unpaired_lock", "locked_backing", "aliased_backings"};
std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(Violation::kCount)> violation_table;

}  // namespace

Options options() {
  environment_error();
  const std::lock_guard lock(options_mutex());
  return stored_options();
}

namespace {

void apply_options(const std::string& json) {
  @autoreleasepool {
    NSDictionary* values = parse_json_object(json);
    const std::lock_guard lock(options_mutex());
    Options changed = stored_options();
    for (NSString* key in values) {
      const std::string name = [key UTF8String];
      bool known = false;
      for (const OptionEntry& entry : option_table()) {
        if (name == entry.name) {
          entry.set(changed, [values objectForKey:key]);
          known = true;
        }
      }
      if (!known) {
        throw std::invalid_argument("no simulator option is named \"" + name + "\"");
      }
    }
    stored_options() = changed;
  }
}

}  // namespace

void configure(const std::string& json) {
  environment_error();  // what the environment asks for must not come later and replace this
  apply_options(json);
}

void reset_options() {
  hide_api("");
  const std::lock_guard lock(options_mutex());
  stored_options() = Options{};
}

std::string options_json() {
  @autoreleasepool {
    const Options now = options();
    NSMutableDictionary* values = [NSMutableDictionary dictionary];
    for (const OptionEntry& entry : option_table()) {
      [values setObject:entry.get(now) forKey:[NSString stringWithUTF8String:entry.name]];
    }
    return write_json(values);
  }
}

void count_live(Live kind, int delta) noexcept { live_table[static_cast<std::size_t>(kind)] += delta; }

std::map<std::string, std::int64_t> live_counts() {
  std::map<std::string, std::int64_t> counts;
  for (std::size_t i = 0; i < live_table.size(); ++i) {
    counts[kLiveNames[i]] = live_table[i].load();
  }
  return counts;
}

void count_violation(Violation kind) noexcept { ++violation_table[static_cast<std::size_t>(kind)]; }

std::map<std::string, std::int64_t> violations() {
  std::map<std::string, std::int64_t> counts;
  for (std::size_t i = 0; i < violation_table.size(); ++i) {
    counts[kViolationNames[i]] = violation_table[i].load();
  }
  return counts;
}

void reset_violations() noexcept {
  for (auto& count : violation_table) {
    count = 0;
  }
}

const std::string& environment_error() {
  static const auto* error = [] {
    const auto* reason = new std::string;
    const char* variable = "KVBACKING_SIMULATOR_OPTIONS";
    try {
      if (const char* text = std::getenv(variable); text != nullptr && *text != '\0') {
        apply_options(text);
      }
      variable = "KVBACKING_SIMULATOR_FAULTS";
      if (const char* text = std::getenv(variable); text != nullptr && *text != '\0') {
        apply_faults(text);
      }
    } catch (const std::exception& exception) {
      delete reason;
      reason = new std::string(std::string(variable) + ": " + exception.what());
    }
    return reason;
  }();
  return *error;
}

}  // namespace coremlsim
