// API newer than the deployment target (macOS 14): asked for at run time, then called inside this pair of markers.
// Threads: any. Ownership: none. `@available` is not used: it needs a compiler runtime helper that the cross-build has
// not, and it is always true on Linux, where the simulator can hide later API.
#pragma once

#define KVB_ASKED_AT_RUN_TIME_BEGIN \
  _Pragma("clang diagnostic push") _Pragma("clang diagnostic ignored \"-Wunguarded-availability-new\"")
#define KVB_ASKED_AT_RUN_TIME_END _Pragma("clang diagnostic pop")

namespace kvbacking {

bool has_state();         // MLState and the stateful predictions, macOS 15
bool has_functions();     // functions of a package, macOS 15
bool has_compute_plan();  // MLComputePlan, macOS 14.4

}  // namespace kvbacking
