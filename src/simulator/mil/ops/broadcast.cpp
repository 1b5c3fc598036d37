#include "mil/ops/broadcast.h"

#include <algorithm>

namespace coremlsim::mil {

std::vector<std::int64_t> dense_strides(const Shape& shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= shape[i];
  }
  return strides;
}

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size());
  Shape shape(rank, 1);
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t x = i < rank - a.size() ? 1 : a[i - (rank - a.size())];
    const std::int64_t y = i < rank - b.size() ? 1 : b[i - (rank - b.size())];
    if (x != y && x != 1 && y != 1)
      throw ModelError("shapes " + describe(a) + " and " + describe(b) + " do not broadcast");
    shape[i] = x == 1 ? y : x;
  }
  return shape;
}

Broadcast::Broadcast(const Shape& result, const std::vector<Shape>& operands) {
  const std::size_t count = operands.size();
  std::vector<std::int64_t> sizes;
  std::vector<std::vector<std::int64_t>> merged(count);
  std::vector<std::vector<std::int64_t>> own;
  for (const Shape& operand : operands) own.push_back(dense_strides(operand));
  for (std::size_t d = 0; d < result.size(); ++d) {
    if (result[d] == 1) continue;
    std::vector<std::int64_t> step(count, 0);
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t missing = result.size() - operands[k].size();
      if (d >= missing && operands[k][d - missing] != 1) step[k] = own[k][d - missing];
    }
    bool merges = !sizes.empty();
    for (std::size_t k = 0; merges && k < count; ++k) merges = merged[k].back() == step[k] * result[d];
    if (merges) {
      sizes.back() *= result[d];
      for (std::size_t k = 0; k < count; ++k) merged[k].back() = step[k];
    } else {
      sizes.push_back(result[d]);
      for (std::size_t k = 0; k < count; ++k) merged[k].push_back(step[k]);
    }
  }
  inner_step.assign(count, 0);
  if (!sizes.empty()) {
    length = sizes.back();
    sizes.pop_back();
    for (std::size_t k = 0; k < count; ++k) {
      inner_step[k] = merged[k].back() != 0 ? 1 : 0;
      merged[k].pop_back();
    }
  }
  outer = std::move(sizes);
  strides = std::move(merged);
  for (const std::int64_t size : outer) rows *= size;
}

}  // namespace coremlsim::mil
