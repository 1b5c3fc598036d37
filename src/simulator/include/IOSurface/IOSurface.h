// Umbrella header, spelled as Apple spells it.
// Threads: see IOSurfaceRef.h.
// Ownership: see IOSurfaceRef.h.
#pragma once

#include <IOSurface/IOSurfaceRef.h>
