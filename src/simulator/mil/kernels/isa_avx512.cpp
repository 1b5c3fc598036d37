// The kernels for AVX-512; libraries.cmake gives this file its compiler flags.
#if defined(__x86_64__)
#define KVB_ISA avx512
#define KVB_ISA_NAME "avx512"
#include "mil/kernels/kernels_impl.h"
#endif
