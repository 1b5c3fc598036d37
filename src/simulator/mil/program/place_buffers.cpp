// Offsets in the arena: the largest buffer first, each at the lowest place that is free during its whole life.
#include <algorithm>
#include <numeric>

#include "mil/program/plan.h"

namespace coremlsim::mil {

void place_buffers(Plan& plan) {
  std::vector<int> order(plan.buffers.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase_if(order, [&](int i) { return plan.buffers[static_cast<std::size_t>(i)].bytes == 0; });
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const std::int64_t x = plan.buffers[static_cast<std::size_t>(a)].bytes;
    const std::int64_t y = plan.buffers[static_cast<std::size_t>(b)].bytes;
    return x != y ? x > y : a < b;
  });
  std::vector<const PlannedBuffer*> by_offset;  // placed ones
  plan.arena_bytes = 0;
  for (const int index : order) {
    PlannedBuffer& buffer = plan.buffers[static_cast<std::size_t>(index)];
    const std::int64_t bytes = align_up(buffer.bytes);
    std::int64_t offset = 0;
    for (const PlannedBuffer* other : by_offset) {
      if (other->last < buffer.first || buffer.last < other->first) continue;
      if (other->offset >= offset + bytes) break;
      offset = std::max(offset, other->offset + align_up(other->bytes));
    }
    buffer.offset = offset;
    by_offset.insert(std::upper_bound(by_offset.begin(), by_offset.end(), &buffer,
                                      [](const auto* a, const auto* b) { return a->offset < b->offset; }),
                     &buffer);
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
  }

  const int steps = static_cast<int>(plan.node_cost.size()) + 1;
  std::vector<std::int64_t> change(static_cast<std::size_t>(steps) + 2, 0);
  for (const PlannedBuffer& buffer : plan.buffers) {
    change[static_cast<std::size_t>(buffer.first) + 1] += align_up(buffer.bytes);
    change[static_cast<std::size_t>(std::min(buffer.last + 2, steps + 1))] -= align_up(buffer.bytes);
  }
  std::int64_t live = 0;
  plan.peak_live_bytes = 0;
  for (const std::int64_t delta : change) plan.peak_live_bytes = std::max(plan.peak_live_bytes, live += delta);
}

}  // namespace coremlsim::mil
