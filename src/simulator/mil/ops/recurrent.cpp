// Recurrent layers: lstm and rnn. The products of a whole sequence with the input weights are made at once, those with
// the recurrent weights step by step.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "mil/kernels/kernels.h"
#include "mil/ops/call.h"
#include "mil/ops/gemm.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

// hard_sigmoid and scaled_tanh are refused: their parameters are not documented.
std::optional<Unary> activation(Call& c, std::string_view name, std::string fallback) {
  const std::string given = c.text(name, std::move(fallback));
  if (given == "linear") return {};
  if (given == "tanh") return Unary::kTanh;
  if (given == "sigmoid") return Unary::kSigmoid;
  if (given == "relu") return Unary::kRelu;
  c.fail(std::string(name) + " '" + given + "' is not supported by the simulator");
}

void apply(const std::optional<Unary>& how, float* x, std::int64_t n) {
  if (how) kernels().unary(*how, x, x, n, 0.0F, 0.0F);
}

struct Sizes {
  std::int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, gates = 1, directions = 1;
  bool sequence = false;  // the first output has every step
};

struct Direction {
  Slot input_weight = kNoSlot, hidden_weight = kNoSlot, bias = kNoSlot, peephole = kNoSlot;
  Storage input_storage = Storage::kFloat, hidden_storage = Storage::kFloat;
  bool reverse = false;
};

Direction read_direction(Call& c, const Sizes& s, const std::string& suffix, bool reverse) {
  const Info& input = c.weight("weight_ih" + suffix);
  const Info& hidden = c.weight("weight_hh" + suffix);
  const std::int64_t rows = s.gates * s.hidden;
  if (input.shape != Shape{rows, s.inputs} || hidden.shape != Shape{rows, s.hidden}) {
    c.fail("weights " + describe(input.shape) + " and " + describe(hidden.shape) + ", expected " +
           describe({rows, s.inputs}) + " and " + describe({rows, s.hidden}));
  }
  Direction d{input.slot, hidden.slot, kNoSlot, kNoSlot, input.storage, hidden.storage, reverse};
  if (const Info* bias = c.maybe("bias" + suffix)) {
    if (bias->shape != Shape{rows} || bias->storage != Storage::kFloat) c.fail("bias " + describe(bias->shape));
    d.bias = bias->slot;
  }
  if (s.gates == 4 && c.has("peephole" + suffix)) {
    const Info& peephole = c.in("peephole" + suffix);
    if (peephole.shape != Shape{3 * s.hidden} || peephole.storage != Storage::kFloat) {
      c.fail("peephole " + describe(peephole.shape));
    }
    d.peephole = peephole.slot;
  }
  return d;
}

Sizes read_sizes(Call& c, std::int64_t gates, std::vector<Direction>& directions) {
  const Info& x = c.in("x");
  const Info& h = c.in("initial_h");
  const std::string direction = c.text("direction", "forward");
  Sizes s;
  s.gates = gates;
  s.directions = direction == "bidirectional" && gates == 4 ? 2 : 1;
  if (s.directions == 1 && direction != "forward" && direction != "reverse") {
    c.fail("unknown direction '" + direction + "'");
  }
  if (x.rank() != 3 || x.storage != Storage::kFloat || h.rank() != 2 || h.storage != Storage::kFloat ||
      h.shape[0] != x.shape[1] || h.shape[1] % s.directions != 0 || x.shape[0] < 1) {
    c.fail("x " + describe(x.shape) + " and initial_h " + describe(h.shape) + " do not fit");
  }
  s.steps = x.shape[0];
  s.batch = x.shape[1];
  s.inputs = x.shape[2];
  s.hidden = h.shape[1] / s.directions;
  s.sequence = c.flag("output_sequence", false);
  directions.push_back(read_direction(c, s, "", direction == "reverse"));
  if (s.directions == 2) directions.push_back(read_direction(c, s, "_back", true));
  c.cost(2.0 * static_cast<double>(s.steps * s.batch) * static_cast<double>(gates * s.hidden * s.directions) *
         static_cast<double>(s.inputs + s.hidden));
  return s;
}

// What one step works on: `gates` [batch, gates * hidden] hold both products and the bias; `h` and `c` [batch, hidden].
using Cell = void (*)(const Sizes&, float* gates, float* h, float* c, const float* peephole,
                      const std::array<std::optional<Unary>, 3>& how);

struct Places {
  Slot x, h0, c0, all, h, c;                // of the operation; c0 and c only of an lstm
  Slot products, hidden_state, cell_state;  // scratch
};

void run_direction(Frame& f, const Sizes& s, const Direction& d, const Places& at, std::int64_t which, Cell cell,
                   const std::array<std::optional<Unary>, 3>& how) {
  const std::int64_t rows = s.gates * s.hidden, wide = s.directions * s.hidden, offset = which * s.hidden;
  float* products = f.f32(at.products);
  float* h = f.f32(at.hidden_state);
  float* c = at.c0 == kNoSlot ? nullptr : f.f32(at.cell_state);
  gemm(f.pool, s.steps * s.batch, rows, s.inputs, {f.f32(at.x), Storage::kFloat, s.inputs, false},
       {f.get<void>(d.input_weight), d.input_storage, s.inputs, true}, d.bias == kNoSlot ? nullptr : f.f32(d.bias),
       products, rows);
  const auto each_row = [&](float* state, float* whole, bool in) {
    for (std::int64_t b = 0; b < s.batch; ++b) {
      float* own = state + b * s.hidden;
      float* place = whole + b * wide + offset;
      in ? std::copy(place, place + s.hidden, own) : std::copy(own, own + s.hidden, place);
    }
  };
  each_row(h, f.f32(at.h0), true);
  if (c) each_row(c, f.f32(at.c0), true);
  std::vector<float> recurrent(static_cast<std::size_t>(s.batch * rows));
  for (std::int64_t i = 0; i < s.steps; ++i) {
    const std::int64_t step = d.reverse ? s.steps - 1 - i : i;
    float* gates = products + step * s.batch * rows;
    gemm(f.pool, s.batch, rows, s.hidden, {h, Storage::kFloat, s.hidden, false},
         {f.get<void>(d.hidden_weight), d.hidden_storage, s.hidden, true}, nullptr, recurrent.data(), rows);
    for (std::int64_t k = 0; k < s.batch * rows; ++k) gates[k] += recurrent[static_cast<std::size_t>(k)];
    cell(s, gates, h, c, d.peephole == kNoSlot ? nullptr : f.f32(d.peephole), how);
    if (s.sequence) each_row(h, f.f32(at.all) + step * s.batch * wide, false);
  }
  if (!s.sequence) each_row(h, f.f32(at.all), false);
  each_row(h, f.f32(at.h), false);
  if (c) each_row(c, f.f32(at.c), false);
}

// Gates in the order input, forget, output, cell.
void lstm_cell(const Sizes& s, float* gates, float* h, float* c, const float* peephole,
               const std::array<std::optional<Unary>, 3>& how) {
  const std::int64_t n = s.hidden;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    float *input = gates + b * 4 * n, *forget = input + n, *output = forget + n, *cell = output + n;
    float *state = c + b * n, *hidden = h + b * n;
    if (peephole) {
      for (std::int64_t i = 0; i < n; ++i) {
        input[i] += peephole[i] * state[i];
        forget[i] += peephole[n + i] * state[i];
      }
    }
    apply(how[0], input, 2 * n);
    apply(how[1], cell, n);
    for (std::int64_t i = 0; i < n; ++i) state[i] = forget[i] * state[i] + input[i] * cell[i];
    if (peephole) {
      for (std::int64_t i = 0; i < n; ++i) output[i] += peephole[2 * n + i] * state[i];
    }
    apply(how[0], output, n);
    std::copy(state, state + n, hidden);
    apply(how[2], hidden, n);
    for (std::int64_t i = 0; i < n; ++i) hidden[i] *= output[i];
  }
}

void rnn_cell(const Sizes& s, float* gates, float* h, float*, const float*,
              const std::array<std::optional<Unary>, 3>& how) {
  std::copy(gates, gates + s.batch * s.hidden, h);
  apply(how[2], h, s.batch * s.hidden);
}

void recurrent(Call& c, std::int64_t gates, Cell cell, const std::array<std::optional<Unary>, 3>& how) {
  std::vector<Direction> directions;
  const Sizes s = read_sizes(c, gates, directions);
  const bool has_cell = gates == 4;
  Places at{};
  at.x = c.in("x").slot;
  at.h0 = c.in("initial_h").slot;
  at.c0 = kNoSlot;
  if (has_cell) {
    const Info& initial = c.in("initial_c");
    if (initial.shape != c.in("initial_h").shape || initial.storage != Storage::kFloat) {
      c.fail("initial_c " + describe(initial.shape) + " is not like initial_h");
    }
    at.c0 = initial.slot;
  }
  const std::int64_t wide = s.directions * s.hidden;
  at.all = c.out({s.sequence ? s.steps : 1, s.batch, wide}, 0);
  at.h = c.out({s.batch, wide}, 1);
  at.c = has_cell ? c.out({s.batch, wide}, 2) : kNoSlot;
  const Shape products{s.steps, s.batch, gates * s.hidden};
  at.products = c.scratch(element_count(products, "the gates") * 4);
  at.hidden_state = c.scratch(s.batch * s.hidden * 4);
  at.cell_state = has_cell ? c.scratch(s.batch * s.hidden * 4) : kNoSlot;
  c.run([=](Frame& f) {
    for (std::size_t d = 0; d < directions.size(); ++d) {
      run_direction(f, s, directions[d], at, static_cast<std::int64_t>(d), cell, how);
    }
  });
}

void lstm(Call& c) {
  if (c.has("clip")) c.fail("clip is not supported by the simulator");
  recurrent(c, 4, lstm_cell,
            {activation(c, "recurrent_activation", "sigmoid"), activation(c, "cell_activation", "tanh"),
             activation(c, "activation", "tanh")});
}

void rnn(Call& c) { recurrent(c, 1, rnn_cell, {std::nullopt, std::nullopt, activation(c, "activation", "tanh")}); }

}  // namespace

OpTable recurrent_ops() { return {{"lstm", lstm}, {"rnn", rnn}}; }

}  // namespace coremlsim::mil
