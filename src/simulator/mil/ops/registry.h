// Which operations the engine has. An operation is one function: it reads the facts of its inputs, declares its outputs
// and hands over the step that computes them.
// Threads: immutable table; safe everywhere.
// Ownership: none.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

namespace coremlsim::mil {

class Call;
using OpFunction = void (*)(Call&);
using OpTable = std::vector<std::pair<std::string_view, OpFunction>>;

OpFunction find_op(std::string_view type);  // null: not supported
std::vector<std::string_view> supported_ops();

// One table per family.
OpTable linear_ops();
OpTable elementwise_ops();
OpTable shape_ops();
OpTable index_ops();
OpTable scatter_ops();
OpTable generate_ops();
OpTable reduce_ops();
OpTable normalize_ops();
OpTable attention_ops();
OpTable conv_ops();
OpTable pool_ops();
OpTable resize_ops();
OpTable sample_ops();
OpTable recurrent_ops();
OpTable batch_ops();
OpTable control_ops();
OpTable einsum_ops();
OpTable state_ops();
OpTable constexpr_ops();

}  // namespace coremlsim::mil
