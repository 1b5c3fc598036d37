// Stride-aware copies between layouts of equal shape: any rank, memcpy per row where rows are dense, fp16 <-> fp32.
// Threads: pure functions on caller memory; nothing else may write either side meanwhile.
// Ownership: none. Source and destination may overlap (the result is as if the source had been read first).
#pragma once

#include <cstddef>

#include "kvbacking/layout.h"

namespace kvbacking {

// Whether what is written should be in the caches afterwards. Bypassing them is faster for more than they hold, and
// slower for whoever reads the bytes next. Runs that are converted or not dense use them all the same.
enum class Caching { kUse, kBypass };

// Copies every logical element. dtypes must be equal, or fp16/fp32 in either direction (round to nearest even).
// Throws Error(kInvalidArgument) on different shapes, another dtype pair or a destination that overlaps itself.
// Padding of the destination is left alone.
void copy_elements(const void* source, const Layout& source_layout, void* destination, const Layout& destination_layout,
                   Caching caching = Caching::kUse);

}  // namespace kvbacking
