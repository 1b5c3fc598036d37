// Lets a thread keep one autorelease pool over many calls: the switch that the autoreleasepool experiment turns.
// Threads: each has its own switch, off at first; on and off from the same thread. Ownership: the thread owns its pool.
#pragma once

namespace kvbacking {

// While held, guarded() makes no pool of its own on this thread; letting go drains everything since. Idempotent.
void hold_autorelease_pool(bool hold);
bool holds_autorelease_pool() noexcept;

}  // namespace kvbacking
