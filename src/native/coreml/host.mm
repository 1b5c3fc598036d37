#import "kvbacking/host.h"

#import <CoreML/CoreML.h>

#include <pthread.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>

#ifdef __APPLE__
#include <Availability.h>
#include <mach-o/dyld.h>
#include <mach-o/loader.h>
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include "core/checks.h"
#import "coreml/availability.h"
#import "coreml/counters.h"
#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/surface.h"
#include "kvbacking/allocation.h"
#include "kvbacking/lease.h"

namespace kvbacking {
namespace {

std::atomic<bool> in_forked_child{false};

// The framework's threads and locks do not survive fork(); nothing of ours may be used in the child.
__attribute__((constructor)) void watch_fork() {
  pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true, std::memory_order_relaxed); });
}

#ifdef __APPLE__
std::string sysctl_text(const char* name) {
  char buffer[256];
  std::size_t size = sizeof buffer;
  if (sysctlbyname(name, buffer, &size, nullptr, 0) != 0 || size == 0) return {};
  return std::string(buffer, strnlen(buffer, size));
}

std::string version_text(std::uint32_t packed) {  // xxxx.yy.zz in nibbles, as load commands and macros hold it
  return std::to_string(packed >> 16) + "." + std::to_string((packed >> 8) & 0xff);
}

std::string executable_sdk() {
  const auto* header = reinterpret_cast<const mach_header_64*>(_dyld_get_image_header(0));
  if (header == nullptr || header->magic != MH_MAGIC_64) return {};
  const char* at = reinterpret_cast<const char*>(header + 1);
  for (std::uint32_t i = 0; i < header->ncmds; ++i) {
    const auto* command = reinterpret_cast<const load_command*>(at);
    if (command->cmd == LC_BUILD_VERSION) {
      return version_text(reinterpret_cast<const build_version_command*>(at)->sdk);
    }
    at += command->cmdsize;
  }
  return {};
}

void fill_system(HostInfo& info) {
  info.os = "macOS " + sysctl_text("kern.osproductversion");
  info.os_build = sysctl_text("kern.osversion");
  info.chip = sysctl_text("machdep.cpu.brand_string");
  info.python_sdk = executable_sdk();
  const long target = __ENVIRONMENT_MAC_OS_X_VERSION_MIN_REQUIRED__;  // 140000
  info.deployment_target = std::to_string(target / 10000) + "." + std::to_string(target / 100 % 100);
#ifdef __MAC_OS_X_VERSION_MAX_ALLOWED
  const long sdk = __MAC_OS_X_VERSION_MAX_ALLOWED;
  info.build_sdk = std::to_string(sdk / 10000) + "." + std::to_string(sdk / 100 % 100);
#endif
}
#else
std::string read_cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return {};
}

void fill_system(HostInfo& info) {
  static const std::string model = read_cpu_model();  // asked for by every load
  utsname names{};
  if (uname(&names) == 0) {
    info.os = names.sysname;
    info.os_build = names.release;
    info.chip = names.machine;
  }
  if (!model.empty()) info.chip = model;
  info.deployment_target = "simulator";
  info.build_sdk = "simulator declarations";
}
#endif

std::int64_t clamp_limit(std::size_t value) {
  return value > static_cast<std::size_t>(INT64_MAX) ? INT64_MAX : static_cast<std::int64_t>(value);
}

}  // namespace

HostInfo host_info() {
  require_same_process();
  return guarded("host_info", ErrorCode::kUnsupportedPlatform, [] {
    HostInfo info;
    fill_system(info);
    info.kind = "coreml";
    info.runtime_version = info.os;
    if (NSClassFromString(@"CoreMLSimulator") != nil) {
      info.kind = "simulator";
      info.runtime_version = KVB_VERSION;
    }
    info.page_size = sysconf(_SC_PAGESIZE);
    const SurfaceLimits limits = surface_limits();
    info.surface_max_width = clamp_limit(limits.width);
    info.surface_max_height = clamp_limit(limits.height);
    info.surface_max_bytes_per_row = clamp_limit(limits.bytes_per_row);
    info.surface_max_alloc_size = clamp_limit(limits.byte_count);
    info.supports_state = has_state();
    info.supports_functions = has_functions();
    info.supports_compute_plan = has_compute_plan();
    return info;
  });
}

std::int64_t memory_footprint_byte_count() {
#ifdef __APPLE__
  task_vm_info_data_t info{};
  mach_msg_type_number_t count = TASK_VM_INFO_COUNT;
  if (task_info(mach_task_self(), TASK_VM_INFO, reinterpret_cast<task_info_t>(&info), &count) != KERN_SUCCESS) return 0;
  return count >= TASK_VM_INFO_REV1_COUNT ? static_cast<std::int64_t>(info.phys_footprint) : 0;
#else
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
#endif
}

std::map<std::string, std::int64_t> live_counts() {
  const auto count = [](Counter counter) { return live_counter(counter).load(std::memory_order_relaxed); };
  return {{"allocation", Allocation::live_count()},
          {"array", count(Counter::kArray)},
          {"surface", count(Counter::kSurface)},
          {"pool", count(Counter::kPool)},
          {"lease", SlotTable::live_lease_count()},
          {"view", count(Counter::kView)},
          {"model", count(Counter::kModel)},
          {"session", count(Counter::kSession)},
          {"prediction", count(Counter::kPrediction)},
          {"input", count(Counter::kInput)},
          {"state", count(Counter::kState)}};
}

std::map<std::string, std::int64_t> created_counts() {
  return {{"allocation", Allocation::created_count()},
          {"allocated_bytes", Allocation::created_byte_count()},
          {"array", created_counter(Counter::kArray).load(std::memory_order_relaxed)},
          {"surface", created_counter(Counter::kSurface).load(std::memory_order_relaxed)}};
}

bool is_forked_child() noexcept { return in_forked_child.load(std::memory_order_relaxed); }

void require_same_process() {
  if (check_enabled(Check::kProcess) && is_forked_child()) {
    throw Error(ErrorCode::kUnsupportedPlatform,
                "[host] Core ML cannot be used in a child after fork(); start worker processes with the spawn method");
  }
}

}  // namespace kvbacking
