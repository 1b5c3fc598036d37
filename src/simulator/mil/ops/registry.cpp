#include "mil/ops/registry.h"

#include <algorithm>
#include <unordered_map>

namespace coremlsim::mil {
namespace {

const std::unordered_map<std::string_view, OpFunction>& table() {
  static const auto* const all = [] {
    auto* map = new std::unordered_map<std::string_view, OpFunction>;
    for (const OpTable& family :
         {linear_ops(), elementwise_ops(), shape_ops(), index_ops(), scatter_ops(), generate_ops(), reduce_ops(),
          normalize_ops(), attention_ops(), conv_ops(), pool_ops(), resize_ops(), sample_ops(), recurrent_ops(),
          batch_ops(), control_ops(), einsum_ops(), state_ops(), constexpr_ops()}) {
      map->insert(family.begin(), family.end());
    }
    return map;
  }();
  return *all;
}

}  // namespace

OpFunction find_op(std::string_view type) {
  const auto it = table().find(type);
  return it == table().end() ? nullptr : it->second;
}

std::vector<std::string_view> supported_ops() {
  std::vector<std::string_view> names{"const"};
  for (const auto& [name, function] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace coremlsim::mil
