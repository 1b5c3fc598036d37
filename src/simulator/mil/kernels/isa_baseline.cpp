// The kernels for baseline; libraries.cmake gives this file its compiler flags.

#define KVB_ISA baseline
#define KVB_ISA_NAME "baseline"
#include "mil/kernels/kernels_impl.h"
