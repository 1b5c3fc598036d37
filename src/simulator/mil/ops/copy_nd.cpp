#include "mil/ops/copy_nd.h"

#include <algorithm>
#include <cstring>

#include "mil/ops/parallel.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kTile = 16;

template <class T>
void strided(const T* in, std::int64_t in_stride, T* out, std::int64_t out_stride, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i * out_stride] = in[i * in_stride];
}

template <class T>
void tile_rows(const T* in, std::int64_t in_row, std::int64_t in_column, T* out, std::int64_t out_row,
               std::int64_t out_column, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t column = 0; column < columns; column += kTile) {
    const std::int64_t width = std::min(kTile, columns - column);
    for (std::int64_t r = 0; r < rows; ++r) {
      const T* from = in + r * in_row + column * in_column;
      T* to = out + r * out_row + column * out_column;
      for (std::int64_t i = 0; i < width; ++i) to[i * out_column] = from[i * in_column];
    }
  }
}

}  // namespace

CopyPlan::CopyPlan(const Shape& shape, const std::vector<std::int64_t>& in_strides, std::int64_t in_offset,
                   const std::vector<std::int64_t>& out_strides, std::int64_t out_offset, std::int64_t width)
    : in_offset_(in_offset), out_offset_(out_offset), width_(width) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    const Dimension next{shape[d], in_strides[d], out_strides[d]};
    if (!outer_.empty() && outer_.back().in_stride == next.size * next.in_stride &&
        outer_.back().out_stride == next.size * next.out_stride) {
      outer_.back() = {outer_.back().size * next.size, next.in_stride, next.out_stride};
    } else {
      outer_.push_back(next);
    }
  }
  if (!outer_.empty()) {
    inner_ = outer_.back();
    outer_.pop_back();
  }
  // Of the dimensions where the input is dense, the copy should walk the longest run next to the output's.
  const auto dense_in = std::find_if(outer_.begin(), outer_.end(), [](const Dimension& d) { return d.in_stride == 1; });
  if (inner_.in_stride != 1 && inner_.out_stride == 1 && dense_in != outer_.end()) {
    std::rotate(dense_in, dense_in + 1, outer_.end());
    tiled_ = true;
  }
  for (const Dimension& d : outer_) row_count_ *= d.size;
}

void CopyPlan::rows(std::int64_t begin, std::int64_t end, const std::uint8_t* in, std::uint8_t* out) const {
  std::vector<std::int64_t> index(outer_.size());
  std::int64_t at_in = in_offset_, at_out = out_offset_, rest = begin;
  for (std::size_t d = outer_.size(); d-- > 0;) {
    index[d] = rest % outer_[d].size;
    rest /= outer_[d].size;
    at_in += index[d] * outer_[d].in_stride;
    at_out += index[d] * outer_[d].out_stride;
  }
  for (std::int64_t row = begin; row < end;) {
    const std::uint8_t* from = in + at_in * width_;
    std::uint8_t* to = out + at_out * width_;
    std::int64_t done = 1;
    if (tiled_) {
      const Dimension& last = outer_.back();
      done = std::min({kTile, last.size - index.back(), end - row});
      const auto go = [&]<class T>(T) {
        tile_rows(reinterpret_cast<const T*>(from), last.in_stride, inner_.in_stride, reinterpret_cast<T*>(to),
                  last.out_stride, inner_.out_stride, done, inner_.size);
      };
      width_ == 4 ? go(std::uint32_t{}) : width_ == 2 ? go(std::uint16_t{}) : go(std::uint8_t{});
    } else if (inner_.in_stride == 1 && inner_.out_stride == 1) {
      std::memcpy(to, from, static_cast<std::size_t>(inner_.size * width_));
    } else {
      const auto go = [&]<class T>(T) {
        strided(reinterpret_cast<const T*>(from), inner_.in_stride, reinterpret_cast<T*>(to), inner_.out_stride,
                inner_.size);
      };
      width_ == 4 ? go(std::uint32_t{}) : width_ == 2 ? go(std::uint16_t{}) : go(std::uint8_t{});
    }
    row += done;
    for (std::size_t d = outer_.size(); d-- > 0;) {
      const std::int64_t step = d + 1 == outer_.size() ? done : 1;
      index[d] += step;
      at_in += step * outer_[d].in_stride;
      at_out += step * outer_[d].out_stride;
      if (index[d] < outer_[d].size) break;
      at_in -= index[d] * outer_[d].in_stride;
      at_out -= index[d] * outer_[d].out_stride;
      index[d] = 0;
    }
  }
}

void CopyPlan::run(ThreadPool& pool, const void* in, void* out) const {
  if (row_count_ == 0 || inner_.size == 0) return;
  const auto* from = static_cast<const std::uint8_t*>(in);
  auto* to = static_cast<std::uint8_t*>(out);
  if (row_count_ == 1 && inner_.in_stride == 1 && inner_.out_stride == 1) {  // one long run
    for_elements(pool, inner_.size, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + (out_offset_ + begin) * width_, from + (in_offset_ + begin) * width_,
                  static_cast<std::size_t>((end - begin) * width_));
    });
    return;
  }
  for_rows(pool, row_count_, inner_.size, [&](std::int64_t begin, std::int64_t end) { rows(begin, end, from, to); });
}

}  // namespace coremlsim::mil
