// What this process runs on: the framework's kind, versions, page size, limits, memory, live native objects.
// Threads: any. Ownership: values only. Errors: only where a function says so.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace kvbacking {

struct HostInfo {
  std::string kind;             // "coreml" | "simulator"
  std::string runtime_version;  // the simulator's version, else the OS version
  std::string os, os_build, chip;
  std::string deployment_target;  // this module was compiled for
  std::string build_sdk;          // SDK (or declarations) it was compiled against
  std::string python_sdk;         // SDK the running executable was linked with, "" off macOS
  std::int64_t page_size = 0;
  std::int64_t surface_max_width = 0, surface_max_height = 0, surface_max_bytes_per_row = 0, surface_max_alloc_size = 0;
  bool supports_state = false, supports_functions = false, supports_compute_plan = false;
};

// Throws Error(kUnsupportedPlatform) in a child after fork().
HostInfo host_info();
// Physical footprint on macOS, RSS on Linux; bytes. 0 where the system does not tell.
std::int64_t memory_footprint_byte_count();
// Native objects alive now: "allocation", "array", "surface", "pool", "lease", "view", "model", "session",
// "prediction", "input".
std::map<std::string, std::int64_t> live_counts();
// Made since the process began: "allocation", "allocated_bytes", "array", "surface".
std::map<std::string, std::int64_t> created_counts();
// Throws Error(kUnsupportedPlatform) in a child after fork(); every entry point calls it.
void require_same_process();

}  // namespace kvbacking
