#include "mil/kernels/kernels.h"

namespace coremlsim::mil {

extern const Kernels kKernels_baseline;
#if defined(__x86_64__)
extern const Kernels kKernels_avx2;
extern const Kernels kKernels_avx512;
#endif

const Kernels& kernels() noexcept {
#if defined(__x86_64__)
  static const Kernels& best = __builtin_cpu_supports("x86-64-v4")   ? kKernels_avx512
                               : __builtin_cpu_supports("x86-64-v3") ? kKernels_avx2
                                                                     : kKernels_baseline;
  return best;
#else
  return kKernels_baseline;
#endif
}

}  // namespace coremlsim::mil
