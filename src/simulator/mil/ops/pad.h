// The pad operation: constant borders, reflection, replication.
// Threads: see Call.
// Ownership: see Call.
#pragma once

#include "mil/ops/call.h"

namespace coremlsim::mil {

void pad(Call& c);

}  // namespace coremlsim::mil
