// Which Highway targets are compiled: one per step that changes these loops, so that the module stays small.
// x86-64: the baseline, SSE4, AVX2, AVX-512. Elsewhere (arm64): the baseline alone, dispatched statically, so that
// no Highway library is needed. Include before any other Highway header.
#pragma once

#if defined(__x86_64__)
// Expanded only when Highway asks for its targets, after the names below exist; older versions lack some of them.
#define HWY_DISABLED_TARGETS KVB_DISABLED_TARGETS
#include <hwy/detect_targets.h>
#ifdef HWY_AVX3_SPR
#define KVB_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_AVX3_ZEN4 | HWY_AVX3_SPR)
#else
#define KVB_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#endif
#else
#define HWY_COMPILE_ONLY_STATIC 1
#endif
