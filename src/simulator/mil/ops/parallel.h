// Grain sizes for loops over elements.
// Threads: see ThreadPool.
// Ownership: none.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mil/program/thread_pool.h"

namespace coremlsim::mil {

constexpr std::int64_t kElementsPerTask = 1
                                          << 15;  // below this, handing work to another thread costs more than it saves

// body(begin, end) over elements.
inline void for_elements(ThreadPool& pool, std::int64_t count, const ThreadPool::Body& body) {
  const std::int64_t share = (count + pool.size() - 1) / pool.size();
  pool.parallel_for(count, std::max(kElementsPerTask, (share + 15) / 16 * 16), body);
}

// body(begin, end) over rows of `length` elements each.
inline void for_rows(ThreadPool& pool, std::int64_t rows, std::int64_t length, const ThreadPool::Body& body) {
  const std::int64_t least = std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(length, 1));
  pool.parallel_for(rows, std::max(least, (rows + 4 * pool.size() - 1) / (4 * pool.size())), body);
}

}  // namespace coremlsim::mil
