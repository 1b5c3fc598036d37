// The framework's own thread on which deallocators run and held objects are let go of, late.
// Threads: post and expedite from any thread; actions run one after the other, each in an autorelease pool.
// Ownership: the queue owns its actions. At process exit it stops without running what is left; a child after fork()
// gets a new thread with its first post.
#pragma once

#include <cstdint>
#include <functional>

namespace coremlsim {

using ReleaseToken = std::uint64_t;

// Runs `action` on the release thread after `delay_ms` (at once and here when the thread is switched off and there is
// no delay).
ReleaseToken post_release(std::function<void()> action, int delay_ms = 0);
// Runs it now if it still waits.
void expedite_release(ReleaseToken token);

}  // namespace coremlsim
