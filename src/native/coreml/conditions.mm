#include "kvbacking/conditions.h"

#ifdef __APPLE__
#import <Foundation/Foundation.h>
#include <mach/mach.h>

#import "coreml/guard.h"
#endif

namespace kvbacking {

#ifdef __APPLE__
namespace {

void read_ticks(HostConditions& conditions) {
  host_cpu_load_info_data_t load{};
  mach_msg_type_number_t count = HOST_CPU_LOAD_INFO_COUNT;
  const mach_port_t host = mach_host_self();
  const kern_return_t status = host_statistics(host, HOST_CPU_LOAD_INFO, reinterpret_cast<host_info_t>(&load), &count);
  mach_port_deallocate(mach_task_self(), host);
  if (status != KERN_SUCCESS) return;
  for (int state = 0; state < CPU_STATE_MAX; ++state) {
    conditions.total_ticks += load.cpu_ticks[state];
    if (state != CPU_STATE_IDLE) conditions.busy_ticks += load.cpu_ticks[state];
  }
}

}  // namespace

HostConditions host_conditions() {
  return guarded("host_conditions", ErrorCode::kUnsupportedPlatform, [] {
    HostConditions conditions;
    NSProcessInfo* process = [NSProcessInfo processInfo];
    switch ([process thermalState]) {
      case NSProcessInfoThermalStateNominal:
        conditions.thermal = "nominal";
        break;
      case NSProcessInfoThermalStateFair:
        conditions.thermal = "fair";
        break;
      case NSProcessInfoThermalStateSerious:
        conditions.thermal = "serious";
        break;
      case NSProcessInfoThermalStateCritical:
        conditions.thermal = "critical";
        break;
    }
    conditions.low_power = static_cast<bool>([process isLowPowerModeEnabled]);
    read_ticks(conditions);
    return conditions;
  });
}
#else
HostConditions host_conditions() { return {}; }  // Linux: /proc and /sys, which the host gate reads itself
#endif

}  // namespace kvbacking
