// What may make this host's timings worthless right now: heat, low power mode, other processes' work.
// Threads: any. Ownership: values only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace kvbacking {

struct HostConditions {
  std::optional<std::string> thermal;  // "nominal", "fair", "serious", "critical"; empty where the system does not tell
  std::optional<bool> low_power;
  std::int64_t busy_ticks = 0, total_ticks = 0;  // of all CPUs since boot; zero where the system does not tell
};

// Throws Error(kUnsupportedPlatform) only when the system raises instead of answering.
HostConditions host_conditions();

}  // namespace kvbacking
