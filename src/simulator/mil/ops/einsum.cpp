// einsum of two operands: both are brought into [batch, row, column] order, multiplied, and brought into the result's.
#include <algorithm>
#include <string>

#include "mil/ops/broadcast.h"
#include "mil/ops/call.h"
#include "mil/ops/copy_nd.h"
#include "mil/ops/gemm.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

struct Letters {
  std::string a, b, out;
};

Letters parse(Call& c, const std::string& equation) {
  Letters letters;
  std::string text;
  std::copy_if(equation.begin(), equation.end(), std::back_inserter(text), [](char ch) { return ch != ' '; });
  const std::size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow ||
      text.find(',', comma + 1) != std::string::npos) {
    c.fail("equation '" + equation + "' is not of the form 'ab,bc->ac'");
  }
  letters = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1), text.substr(arrow + 2)};
  for (const std::string* s : {&letters.a, &letters.b, &letters.out}) {
    std::string sorted = *s;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end())
      c.fail("a letter repeats within a term of '" + equation + "'");
  }
  return letters;
}

bool contains(const std::string& text, char letter) { return text.find(letter) != std::string::npos; }

// The operand's dimensions in the order of `order`.
CopyPlan arrange(const std::string& own, const Shape& shape, const std::string& order, std::int64_t& count) {
  const std::vector<std::int64_t> strides = dense_strides(shape);
  Shape sizes;
  std::vector<std::int64_t> steps;
  count = 1;
  for (const char letter : order) {
    const std::size_t d = own.find(letter);
    sizes.push_back(shape[d]);
    steps.push_back(strides[d]);
    count *= shape[d];
  }
  return CopyPlan(sizes, steps, 0, dense_strides(sizes), 0, 4);
}

void einsum(Call& c) {
  const std::vector<const Info*> values = c.list("values");
  if (values.size() != 2) c.fail("needs two operands");
  const Info &x = *values[0], &y = *values[1];
  if (x.storage != Storage::kFloat || y.storage != Storage::kFloat) c.fail("needs floating point tensors");
  const Letters letters = parse(c, c.text("equation"));
  if (letters.a.size() != x.shape.size() || letters.b.size() != y.shape.size()) c.fail("equation and ranks disagree");
  std::string batch, rows, columns, summed;
  const auto size_of = [&](char letter) {
    return contains(letters.a, letter) ? x.shape[letters.a.find(letter)] : y.shape[letters.b.find(letter)];
  };
  for (const char letter : letters.a) {
    const bool shared = contains(letters.b, letter), kept = contains(letters.out, letter);
    if (shared && y.shape[letters.b.find(letter)] != size_of(letter))
      c.fail(std::string("sizes of '") + letter + "' differ");
    if (!shared && !kept) c.fail(std::string("'") + letter + "' is summed in one operand alone");
    (shared ? (kept ? batch : summed) : rows) += letter;
  }
  for (const char letter : letters.b) {
    if (contains(letters.a, letter)) continue;
    if (!contains(letters.out, letter)) c.fail(std::string("'") + letter + "' is summed in one operand alone");
    columns += letter;
  }
  const std::string natural = batch + rows + columns;
  if (letters.out.size() != natural.size()) c.fail("the result has letters that no operand has");
  Shape natural_shape, shape;
  for (const char letter : natural) natural_shape.push_back(size_of(letter));
  for (const char letter : letters.out) shape.push_back(size_of(letter));
  const auto extent = [&](const std::string& group) {
    std::int64_t n = 1;
    for (const char letter : group) n *= size_of(letter);
    return n;
  };
  const std::int64_t b = extent(batch), m = extent(rows), n = extent(columns), k = extent(summed);
  std::int64_t x_count = 0, y_count = 0, out_count = 0;
  const CopyPlan left = arrange(letters.a, x.shape, batch + rows + summed, x_count);
  const CopyPlan right = arrange(letters.b, y.shape, batch + summed + columns, y_count);
  const CopyPlan back = arrange(natural, natural_shape, letters.out, out_count);
  const Slot xs = x.slot, ys = y.slot, ls = c.scratch(x_count * 4), rs = c.scratch(y_count * 4),
             ps = c.scratch(out_count * 4);
  const Slot out = c.out(std::move(shape));
  c.cost(2.0 * static_cast<double>(b * m) * static_cast<double>(n) * static_cast<double>(k));
  c.run([=](Frame& f) {
    left.run(f.pool, f.get<void>(xs), f.get<void>(ls));
    right.run(f.pool, f.get<void>(ys), f.get<void>(rs));
    for (std::int64_t i = 0; i < b; ++i) {
      gemm(f.pool, m, n, k, {f.f32(ls) + i * m * k, Storage::kFloat, k, false},
           {f.f32(rs) + i * k * n, Storage::kFloat, n, false}, nullptr, f.f32(ps) + i * m * n, n);
    }
    back.run(f.pool, f.get<void>(ps), f.get<void>(out));
  });
}

}  // namespace

OpTable einsum_ops() { return {{"einsum", einsum}}; }

}  // namespace coremlsim::mil
