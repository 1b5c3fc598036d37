// Whether this process is a child made by fork(): the framework's threads and locks did not come along.
// Threads: any. Ownership: none. Destructors ask and leave framework objects alone then: releasing could wait for ever.
#pragma once

namespace kvbacking {

bool is_forked_child() noexcept;

}  // namespace kvbacking
