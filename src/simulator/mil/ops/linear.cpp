// linear, matmul, einsum of the forms that coremltools writes.
#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/gemm.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

void linear(Call& c) {
  const Info& x = c.in("x");
  const Info& weight = c.weight("weight");
  const Info* bias = c.maybe("bias");
  if (x.storage != Storage::kFloat || storage_of(weight.dtype) != Storage::kFloat)
    c.fail("needs floating point tensors");
  if (x.rank() < 1 || weight.rank() != 2 || weight.shape[1] != x.shape.back()) {
    c.fail("x " + describe(x.shape) + " and weight " + describe(weight.shape) + " do not fit");
  }
  const std::int64_t n = weight.shape[0], k = weight.shape[1];
  if (bias && (bias->count != n || bias->storage != Storage::kFloat)) c.fail("needs one bias per output channel");
  Shape shape = x.shape;
  shape.back() = n;
  const std::int64_t m = k ? x.count / k : element_count(shape, "result") / std::max<std::int64_t>(n, 1);
  const Slot xs = x.slot, ws = weight.slot, bs = bias ? bias->slot : kNoSlot;
  const Storage storage = weight.storage;
  const Slot out = c.out(std::move(shape));
  c.cost(2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  c.run([=](Frame& f) {
    gemm(f.pool, m, n, k, {f.f32(xs), Storage::kFloat, k, false}, {f.get<void>(ws), storage, k, true},
         bs == kNoSlot ? nullptr : f.f32(bs), f.f32(out), n);
  });
}

void matmul(Call& c) {
  const Info& x = c.weight("x");
  const Info& y = c.weight("y");
  const bool tx = c.flag("transpose_x", false), ty = c.flag("transpose_y", false);
  if (storage_of(x.dtype) != Storage::kFloat || storage_of(y.dtype) != Storage::kFloat) {
    c.fail("needs floating point tensors");
  }
  if (x.rank() < 1 || y.rank() < 1) c.fail("needs a rank of at least 1");
  // A vector is a row on the left and a column on the right; that dimension does not appear in the result.
  Shape a = x.shape, b = y.shape;
  if (x.rank() == 1) a.insert(a.begin(), 1);
  if (y.rank() == 1) b.push_back(1);
  const bool transpose_x = tx && x.rank() > 1, transpose_y = ty && y.rank() > 1;
  const std::int64_t ar = a[a.size() - 2], ac = a.back(), br = b[b.size() - 2], bc = b.back();
  const std::int64_t m = transpose_x ? ac : ar, k = transpose_x ? ar : ac, n = transpose_y ? br : bc;
  if ((transpose_y ? bc : br) != k) c.fail("x " + describe(x.shape) + " and y " + describe(y.shape) + " do not fit");
  const Shape batch_a(a.begin(), a.end() - 2), batch_b(b.begin(), b.end() - 2);
  const Shape batch = broadcast_shape(batch_a, batch_b);
  const std::int64_t batches = element_count(batch, "matmul");
  Shape shape = batch;
  if (x.rank() > 1) shape.push_back(m);
  if (y.rank() > 1) shape.push_back(n);
  const Slot xs = x.slot, ys = y.slot;
  const Storage sx = x.storage, sy = y.storage;
  const Broadcast loops(batch, {batch_a, batch_b});
  const bool shared_y = element_count(batch_b, "matmul") == 1 && !transpose_x && x.rank() > 1;
  const Slot out = c.out(std::move(shape));
  c.cost(2.0 * static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
  c.run([=](Frame& f) {
    const auto* left = f.get<const std::uint8_t>(xs);
    const auto* right = f.get<const std::uint8_t>(ys);
    float* result = f.f32(out);
    if (shared_y) {  // one tall product
      return gemm(f.pool, batches * m, n, k, {left, sx, ac, false}, {right, sy, bc, transpose_y}, nullptr, result, n);
    }
    const auto one = [&](std::int64_t index, auto&& product) {
      const auto at = loops.offsets<2>(index / loops.length);
      const std::int64_t inner = index % loops.length;
      const std::int64_t ai = (at[0] + inner * loops.inner_step[0]) * ar * ac;
      const std::int64_t bi = (at[1] + inner * loops.inner_step[1]) * br * bc;
      product(Operand{left + ai * storage_bytes(sx), sx, ac, transpose_x},
              Operand{right + bi * storage_bytes(sy), sy, bc, transpose_y}, result + index * m * n);
    };
    if (batches >= f.pool.size() && m * n * k < (1 << 26)) {
      const std::int64_t grain = std::max<std::int64_t>(1, (1 << 18) / std::max<std::int64_t>(m * n * k, 1));
      return f.pool.parallel_for(batches, grain, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          one(i, [&](const Operand& l, const Operand& r, float* to) { gemm_serial(m, n, k, l, r, nullptr, to, n); });
        }
      });
    }
    for (std::int64_t i = 0; i < batches; ++i) {
      one(i, [&](const Operand& l, const Operand& r, float* to) { gemm(f.pool, m, n, k, l, r, nullptr, to, n); });
    }
  });
}

}  // namespace

OpTable linear_ops() { return {{"linear", linear}, {"matmul", matmul}}; }

}  // namespace coremlsim::mil
