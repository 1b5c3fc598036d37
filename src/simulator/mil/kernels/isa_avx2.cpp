// The kernels for AVX2; libraries.cmake gives this file its compiler flags.
#if defined(__x86_64__)
#define KVB_ISA avx2
#define KVB_ISA_NAME "avx2"
#include "mil/kernels/kernels_impl.h"
#endif
