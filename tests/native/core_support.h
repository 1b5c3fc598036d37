// Shared by the core suites: a seeded generator, random layouts, a plain index walk, one loop over every SIMD target.
// Threads: each test its own. Ownership: values only.
#pragma once

#include <core/targets.h>
// After targets.h.
#include <hwy/highway.h>

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking::test {

// Random rounds of a test: fewer under a sanitizer, where each costs ten times as much.
constexpr int rounds(int normally) {
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return normally / 8;
#else
  return normally;
#endif
}

// splitmix64: the same numbers on every standard library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  // In [low, high].
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }

 private:
  std::uint64_t state_;
};

// Calls visit(logical index, element offset) for every element in C order.
inline void for_each_element(const Layout& layout, const std::function<void(std::int64_t, std::int64_t)>& visit) {
  const std::int64_t count = layout.element_count();
  for (std::int64_t logical = 0; logical < count; ++logical) {
    std::int64_t rest = logical;
    std::int64_t offset = 0;
    for (std::size_t i = layout.shape.size(); i-- > 0;) {
      offset += rest % layout.shape[i] * layout.element_strides[i];
      rest /= layout.shape[i];
    }
    visit(logical, offset);
  }
}

// A permutation of dimensions, gaps between them, optional reversal: every pattern that does not share elements.
inline Layout random_layout(Random& random, DType dtype, const std::vector<std::int64_t>& shape, bool allow_negative) {
  std::vector<std::size_t> order(shape.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (random.chance(30)) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(i) - 1))]);
    }
  }
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t step = random.chance(70) ? 1 : random.between(1, 3);
  for (std::size_t k = order.size(); k-- > 0;) {
    const std::size_t axis = order[k];
    strides[axis] = allow_negative && random.chance(20) ? -step : step;
    step = step * std::max<std::int64_t>(shape[axis], 1) + (random.chance(30) ? random.between(1, 40) : 0);
  }
  return Layout::strided(dtype, shape, strides);
}

inline std::vector<std::int64_t> random_shape(Random& random, std::int64_t max_elements) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(random.between(0, 5)));
  std::int64_t left = max_elements;
  for (auto& size : shape) {
    size = random.chance(3) ? 0 : random.between(1, std::max<std::int64_t>(1, std::min<std::int64_t>(left, 70)));
    left /= std::max<std::int64_t>(size, 1);
  }
  return shape;
}

// Runs `body` once per compiled SIMD target that this machine has, then restores the normal choice.
inline void for_each_target(const std::function<void(const char*)>& body) {
#if HWY_TARGETS != HWY_STATIC_TARGET
  const auto supported = hwy::SupportedTargets() & HWY_TARGETS;
  for (auto left = supported; left != 0; left &= left - 1) {
    const auto target = left & -left;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
#else
  body(hwy::TargetName(HWY_STATIC_TARGET));
#endif
}

}  // namespace kvbacking::test
