// Control flow. A program that has it runs node by node, and its blocks are programs of their own.
#include <cstring>

#include "mil/ops/call.h"
#include "mil/ops/registry.h"
#include "mil/program/aligned_buffer.h"

namespace coremlsim::mil {
namespace {

bool truth(Call& c, const std::vector<BlockResult>& condition) {
  if (condition.size() != 1 || condition[0].storage != Storage::kBool || condition[0].count != 1) {
    c.fail("the condition must be one bool");
  }
  return *static_cast<const std::uint8_t*>(condition[0].data.get()) != 0;
}

void cond(Call& c) {
  const std::int64_t first = c.integer("pred") != 0 ? 0 : 1;
  c.give(c.run_block(static_cast<std::size_t>(first), {}));
}

// Block 0 is the condition, block 1 the body; both take the loop's variables.
void while_loop(Call& c) {
  std::vector<BlockResult> variables;
  for (const Info* info : c.list("loop_vars")) {
    if (!info->data) throw NeedsValue{};
    variables.push_back({info->storage, info->shape, info->count, std::shared_ptr<void>(allocate(info->bytes()))});
    std::memcpy(variables.back().data.get(), info->data, static_cast<std::size_t>(info->bytes()));
  }
  while (truth(c, c.run_block(0, variables))) {
    c.count_turn();
    variables = c.run_block(1, variables);
  }
  c.give(std::move(variables));
}

}  // namespace

OpTable control_ops() { return {{"cond", cond}, {"while_loop", while_loop}}; }

}  // namespace coremlsim::mil
