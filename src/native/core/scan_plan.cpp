#include "core/scan_plan.h"

#include <algorithm>
#include <cstring>

#include "core/checked_math.h"

namespace kvbacking {
namespace {

// Of the first array. Small enough that the processor's own prefetching of the next unit (and what xxHash asks for)
// hides behind the arithmetic of this one; measured best of 1 to 16 KiB.
constexpr std::int64_t kUnitBytes = 4096;
constexpr std::int64_t kShortRunBytes = 512;  // shorter runs are gathered: calls would cost more than the copy

template <std::size_t kSize>
void gather_run(std::byte* destination, const std::byte* source, std::int64_t count, std::int64_t stride) {
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(destination + i * kSize, source + i * stride, kSize);
}

void gather_run(std::byte* destination, const std::byte* source, std::int64_t count, std::int64_t stride,
                std::int64_t size) {
  if (stride == size) {
    std::memcpy(destination, source, static_cast<std::size_t>(count * size));
    return;
  }
  switch (size) {
    case 1:
      return gather_run<1>(destination, source, count, stride);
    case 2:
      return gather_run<2>(destination, source, count, stride);
    case 4:
      return gather_run<4>(destination, source, count, stride);
    default:
      return gather_run<8>(destination, source, count, stride);
  }
}

std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

}  // namespace

ScanPlan::ScanPlan(const void* data, const Layout& layout, const void* other, const Layout* other_layout)
    : a_(static_cast<const std::byte*>(data)),
      b_(static_cast<const std::byte*>(other)),
      a_size_(static_cast<std::int64_t>(element_size(layout.dtype))),
      b_size_(other_layout == nullptr ? 0 : static_cast<std::int64_t>(element_size(other_layout->dtype))),
      element_count_(layout.element_count()) {
  coalesce(layout, other_layout);
  const Axis& inner = axes_.back();
  const bool dense_runs = inner.a_stride == a_size_ && (b_ == nullptr || inner.b_stride == b_size_);
  unit_elements_ = kUnitBytes / a_size_;
  if (!dense_runs || inner.size * a_size_ < std::min(kShortRunBytes, element_count_ * a_size_)) {
    mode_ = Mode::kGather;
    unit_count_ = ceil_divide(element_count_, unit_elements_);
  } else if (inner.size >= unit_elements_ || axes_.size() == 1) {
    mode_ = Mode::kLongRun;
    units_per_parent_ = ceil_divide(inner.size, unit_elements_);
    unit_count_ = element_count_ / inner.size * units_per_parent_;
  } else {
    mode_ = Mode::kRows;
    const std::int64_t group = axes_[axes_.size() - 2].size;
    rows_per_unit_ = std::max<std::int64_t>(1, unit_elements_ / inner.size);
    units_per_parent_ = ceil_divide(group, rows_per_unit_);
    unit_count_ = element_count_ / inner.size / group * units_per_parent_;
  }
}

void ScanPlan::coalesce(const Layout& layout, const Layout* other_layout) {
  for (std::size_t i = layout.shape.size(); i-- > 0;) {
    if (layout.shape[i] == 1) continue;
    const Axis axis{
        layout.shape[i], checked_multiply(layout.element_strides[i], a_size_, "stride"),
        other_layout == nullptr ? 0 : checked_multiply(other_layout->element_strides[i], b_size_, "stride")};
    if (!axes_.empty()) {
      Axis& inner = axes_.back();
      std::int64_t a_run = 0;
      std::int64_t b_run = 0;
      if (!__builtin_mul_overflow(inner.a_stride, inner.size, &a_run) && a_run == axis.a_stride &&
          !__builtin_mul_overflow(inner.b_stride, inner.size, &b_run) && b_run == axis.b_stride) {
        inner.size *= axis.size;
        continue;
      }
    }
    axes_.push_back(axis);
  }
  if (axes_.empty()) axes_.push_back({1, a_size_, b_size_});
  std::ranges::reverse(axes_);
}

// Where index `outer_index` of the first `axis_count` axes, counted in C order, begins.
ScanPlan::Offsets ScanPlan::offsets_of(std::int64_t outer_index, std::size_t axis_count) const noexcept {
  Offsets offsets;
  for (std::size_t i = axis_count; i-- > 0;) {
    const std::int64_t position = outer_index % axes_[i].size;
    outer_index /= axes_[i].size;
    offsets.a += position * axes_[i].a_stride;
    offsets.b += position * axes_[i].b_stride;
  }
  return offsets;
}

Unit ScanPlan::load(std::int64_t unit, UnitBuffer& buffer) const {
  switch (mode_) {
    case Mode::kLongRun:
      return load_long_run(unit);
    case Mode::kRows:
      return load_rows(unit);
    case Mode::kGather:
      break;
  }
  return load_gathered(unit, buffer);
}

Unit ScanPlan::load_long_run(std::int64_t unit) const noexcept {
  const Axis& inner = axes_.back();
  const std::int64_t run = unit / units_per_parent_;
  const std::int64_t start = unit % units_per_parent_ * unit_elements_;
  const std::int64_t length = std::min(unit_elements_, inner.size - start);
  const Offsets offsets = offsets_of(run, axes_.size() - 1);
  Unit loaded;
  loaded.logical_start = run * inner.size + start;
  loaded.a = {a_ + offsets.a + start * a_size_, 1, length, length * a_size_};
  if (b_ != nullptr) loaded.b = {b_ + offsets.b + start * b_size_, 1, length, length * b_size_};
  return loaded;
}

Unit ScanPlan::load_rows(std::int64_t unit) const noexcept {
  const Axis& inner = axes_.back();
  const Axis& group = axes_[axes_.size() - 2];
  const std::int64_t parent = unit / units_per_parent_;
  const std::int64_t first_row = unit % units_per_parent_ * rows_per_unit_;
  const std::int64_t rows = std::min(rows_per_unit_, group.size - first_row);
  const Offsets offsets = offsets_of(parent, axes_.size() - 2);
  Unit loaded;
  loaded.logical_start = (parent * group.size + first_row) * inner.size;
  loaded.a = {a_ + offsets.a + first_row * group.a_stride, rows, inner.size, group.a_stride};
  if (b_ != nullptr) loaded.b = {b_ + offsets.b + first_row * group.b_stride, rows, inner.size, group.b_stride};
  return loaded;
}

Unit ScanPlan::load_gathered(std::int64_t unit, UnitBuffer& buffer) const {
  const std::int64_t first = unit * unit_elements_;
  const std::int64_t count = std::min(unit_elements_, element_count_ - first);
  Unit loaded;
  loaded.logical_start = first;
  buffer.a.resize(static_cast<std::size_t>(unit_elements_ * a_size_));
  gather(first, count, false, buffer.a.data());
  loaded.a = {buffer.a.data(), 1, count, count * a_size_};
  if (b_ != nullptr) {
    buffer.b.resize(static_cast<std::size_t>(unit_elements_ * b_size_));
    gather(first, count, true, buffer.b.data());
    loaded.b = {buffer.b.data(), 1, count, count * b_size_};
  }
  return loaded;
}

void ScanPlan::gather(std::int64_t first, std::int64_t count, bool second, std::byte* destination) const {
  const std::byte* base = second ? b_ : a_;
  const std::int64_t size = second ? b_size_ : a_size_;
  const Axis& inner = axes_.back();
  const std::int64_t inner_stride = second ? inner.b_stride : inner.a_stride;
  while (count > 0) {
    const std::int64_t position = first % inner.size;
    const std::int64_t run = std::min(count, inner.size - position);
    const Offsets offsets = offsets_of(first / inner.size, axes_.size() - 1);
    gather_run(destination, base + (second ? offsets.b : offsets.a) + position * inner_stride, run, inner_stride, size);
    destination += run * size;
    first += run;
    count -= run;
  }
}

}  // namespace kvbacking
