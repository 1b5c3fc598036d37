// scaled_dot_product_attention, in blocks of query rows so that the score matrix is never whole.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "mil/kernels/kernels.h"
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/gemm.h"
#include "mil/ops/registry.h"
#include "mil/program/thread_scratch.h"

namespace coremlsim::mil {
namespace {

constexpr std::int64_t kQueryRows = 128;

struct Heads {
  std::int64_t batches = 1, l = 0, s = 0, e = 0, ev = 0;
};

// Adds the mask's row (already offset) to a row of scores.
void apply_mask(const void* mask, Storage storage, std::int64_t step, float* scores, std::int64_t n) {
  if (storage == Storage::kFloat) {
    kernels().binary_f32(Binary::kAdd, scores, 1, static_cast<const float*>(mask), static_cast<int>(step), scores, n);
    return;
  }
  const auto* keep = static_cast<const std::uint8_t*>(mask);
  for (std::int64_t i = 0; i < n; ++i) {
    if (!keep[i * step]) scores[i] = -std::numeric_limits<float>::infinity();
  }
}

Shape batch_of(const Info& info) { return Shape(info.shape.begin(), info.shape.end() - 2); }

void attention(Call& c) {
  const Info& q = c.in("query");
  const Info& k = c.in("key");
  const Info& v = c.in("value");
  const Info* mask = c.maybe("attn_mask");
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) c.fail("needs a rank of at least 2");
  for (const Info* x : {&q, &k, &v}) {
    if (x->storage != Storage::kFloat) c.fail("needs floating point tensors");
  }
  const auto size = [](const Info& x, std::int64_t from_end) {
    return x.shape[x.shape.size() - static_cast<std::size_t>(from_end)];
  };
  Heads h{1, size(q, 2), size(k, 2), size(q, 1), size(v, 1)};
  if (size(k, 1) != h.e || size(v, 2) != h.s) {
    c.fail("query " + describe(q.shape) + ", key " + describe(k.shape) + ", value " + describe(v.shape) +
           " do not fit");
  }
  const Shape batch = broadcast_shape(batch_of(q), broadcast_shape(batch_of(k), batch_of(v)));
  h.batches = element_count(batch, "attention");
  Shape mask_shape = {1, 1};
  if (mask) {
    if (mask->storage != Storage::kFloat && mask->storage != Storage::kBool)
      c.fail("the mask must be bool or floating point");
    Shape full = batch;
    full.insert(full.end(), {h.l, h.s});
    if (broadcast_shape(mask->shape, full) != full)
      c.fail("mask " + describe(mask->shape) + " does not fit " + describe(full));
    mask_shape = mask->shape;
    while (mask_shape.size() < 2) mask_shape.insert(mask_shape.begin(), 1);
  }
  const Broadcast loops(batch,
                        {batch_of(q), batch_of(k), batch_of(v), Shape(mask_shape.begin(), mask_shape.end() - 2)});
  const std::int64_t mask_l = mask_shape[mask_shape.size() - 2], mask_s = mask_shape.back();
  const Storage mask_storage = mask ? mask->storage : Storage::kFloat;
  const Slot qs = q.slot, ks = k.slot, vs = v.slot, ms = mask ? mask->slot : kNoSlot;
  Shape shape = batch;
  shape.insert(shape.end(), {h.l, h.ev});
  const Slot out = c.out(std::move(shape));
  const float scale = 1.0F / std::sqrt(static_cast<float>(h.e));
  const std::int64_t blocks = (h.l + kQueryRows - 1) / kQueryRows;
  c.cost(2.0 * static_cast<double>(h.batches) * static_cast<double>(h.l) * static_cast<double>(h.s) *
         static_cast<double>(h.e + h.ev));
  c.run([=](Frame& f) {
    f.pool.parallel_for(h.batches * blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t index = task / blocks, first = task % blocks * kQueryRows;
        const std::int64_t rows = std::min(kQueryRows, h.l - first);
        auto at = loops.offsets<4>(index / loops.length);
        for (std::size_t i = 0; i < at.size(); ++i) at[i] += index % loops.length * loops.inner_step[i];
        float* const scores = thread_scratch(rows * (h.s + h.e));
        float* const scaled = scores + rows * h.s;
        kernels().unary(Unary::kLinear, f.f32(qs) + (at[0] * h.l + first) * h.e, scaled, rows * h.e, scale, 0.0F);
        gemm_serial(rows, h.s, h.e, {scaled, Storage::kFloat, h.e, false},
                    {f.f32(ks) + at[1] * h.s * h.e, Storage::kFloat, h.e, true}, nullptr, scores, h.s);
        for (std::int64_t row = 0; row < rows; ++row) {
          float* line = scores + row * h.s;
          if (ms != kNoSlot) {
            const std::int64_t mask_row = mask_l == 1 ? 0 : first + row;
            const std::int64_t offset = (at[3] * mask_l + mask_row) * mask_s;
            apply_mask(f.bytes(ms) + offset * storage_bytes(mask_storage), mask_storage, mask_s == 1 ? 0 : 1, line,
                       h.s);
          }
          kernels().softmax_row(line, line, h.s);
        }
        gemm_serial(rows, h.ev, h.s, {scores, Storage::kFloat, h.s, false},
                    {f.f32(vs) + at[2] * h.s * h.ev, Storage::kFloat, h.ev, false}, nullptr,
                    f.f32(out) + (index * h.l + first) * h.ev, h.ev);
      }
    });
  });
}

}  // namespace

OpTable attention_ops() { return {{"scaled_dot_product_attention", attention}}; }

}  // namespace coremlsim::mil
