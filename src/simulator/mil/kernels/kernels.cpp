#include "mil/kernels/kernels.h"

#include <cstdlib>
#include <string>
#include <string_view>

#include "mil/engine.h"

namespace coremlsim::mil {

extern const Kernels kKernels_baseline;
#if defined(__x86_64__)
extern const Kernels kKernels_avx2;
extern const Kernels kKernels_avx512;
#endif

namespace {

struct Choice {
  const Kernels* kernels;
  bool runs;
};

// Best first; KVBACKING_SIMULATOR_KERNELS names another one, so that every set can be tested on one machine.
const Kernels& choose() {
  const Choice choices[] = {
#if defined(__x86_64__)
      {&kKernels_avx512, __builtin_cpu_supports("x86-64-v4") != 0},
      {&kKernels_avx2, __builtin_cpu_supports("x86-64-v3") != 0},
#endif
      {&kKernels_baseline, true},
  };
  const char* variable = std::getenv("KVBACKING_SIMULATOR_KERNELS");
  const std::string_view wanted = variable ? variable : "";
  std::string names;
  for (const Choice& choice : choices) {
    if (wanted.empty() ? choice.runs : wanted == choice.kernels->name) {
      if (choice.runs) return *choice.kernels;
      throw ModelError("[mil] KVBACKING_SIMULATOR_KERNELS is '" + std::string(wanted) +
                       "', which this processor cannot run");
    }
    names += (names.empty() ? "" : ", ") + std::string(choice.kernels->name);
  }
  throw ModelError("[mil] KVBACKING_SIMULATOR_KERNELS is '" + std::string(wanted) + "', not one of " + names);
}

}  // namespace

const Kernels& kernels() {
  static const Kernels& chosen = choose();
  return chosen;
}

}  // namespace coremlsim::mil
