// GNUstep includes this name whenever clang compiles with -fblocks; our runtime is the one behind it.
// Threads and ownership: see Block.h.
#pragma once

#include <Block.h>
