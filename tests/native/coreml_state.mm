// Model state: zeroed, carried from step to step, read, written, restored, never shared by two calls.
#include <doctest/doctest.h>

#include "coreml_support.h"
#include "kvbacking/state.h"

#include <atomic>

using namespace kvbacking;
using namespace kvbacking::test;

namespace {

struct Step {  // hidden float16 [1, 1, 8], position int32 [1]
  std::vector<_Float16> hidden;
  std::int32_t position;
  explicit Step(std::int32_t at) : hidden(8), position(at) {
    for (std::size_t i = 0; i < 8; ++i)
      hidden[i] = static_cast<_Float16>(static_cast<float>(at + 1) / 4 + 0.125F * static_cast<float>(i));
  }
  std::vector<InputArray> inputs() const {
    return {{"hidden", hidden.data(), Layout::dense(DType::kFloat16, {1, 1, 8})},
            {"position", &position, Layout::dense(DType::kInt32, {1})}};
  }
};

std::vector<_Float16> buffer(const State& state, const std::string& name) {
  const OwnedOutput copy = state.read(name);
  return dense_values(copy.memory.get(), copy.layout);
}

bool all_zero(const std::vector<_Float16>& values) {
  for (const _Float16 value : values) {
    if (value != static_cast<_Float16>(0)) return false;
  }
  return true;
}

Contract step_contract() {
  Contract contract;
  contract.outputs = {{"key_rows", DType::kFloat16, {1, 2, 1, 4}}, {"value_rows", DType::kFloat16, {1, 2, 1, 4}}};
  contract.unbacked = {"step"};
  contract.axis = 2;
  contract.live = 1;
  contract.sensitive_to = {"hidden"};
  return contract;
}

}  // namespace

TEST_CASE("a state starts at zero and keeps what predictions write") {
  const auto model = load("stateful.mlpackage");
  REQUIRE(model->states().size() == 2);
  const auto state = State::create(model);
  CHECK(state->names() == std::vector<std::string>{"key_cache", "value_cache"});
  CHECK(all_zero(buffer(*state, "key_cache")));
  predict_once(*model, Step(0).inputs(), state);
  const auto after_one = buffer(*state, "key_cache");
  CHECK_FALSE(all_zero(after_one));
  predict_once(*model, Step(1).inputs(), state);
  CHECK_FALSE(same_bytes(buffer(*state, "key_cache"), after_one));
  state->zero();
  CHECK(all_zero(buffer(*state, "key_cache")));
  CHECK(all_zero(buffer(*state, "value_cache")));
}

TEST_CASE("a restored snapshot gives the same continuation") {
  const auto model = load("stateful.mlpackage");
  const auto state = State::create(model);
  predict_once(*model, Step(0).inputs(), state);
  const auto snapshot = state->snapshot();
  const auto first = predict_once(*model, Step(1).inputs(), state);
  predict_once(*model, Step(2).inputs(), state);
  state->restore(snapshot);
  const auto again = predict_once(*model, Step(1).inputs(), state);
  for (std::size_t i = 0; i < first.size(); ++i) {
    CHECK(same_bytes(dense_values(first[i].memory.get(), first[i].layout),
                     dense_values(again[i].memory.get(), again[i].layout)));
  }
}

TEST_CASE("a state buffer is written from any strides and dtype pair that copies know") {
  const auto model = load("stateful.mlpackage");
  const auto state = State::create(model);
  std::vector<float> values(2 * 8 * 4);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  state->write("key_cache", values.data(), Layout::dense(DType::kFloat32, {1, 2, 8, 4}));
  const auto stored = buffer(*state, "key_cache");
  for (std::size_t i = 0; i < values.size(); ++i) CHECK(static_cast<float>(stored[i]) == values[i]);
  CHECK(error_of([&] { state->write("key_cache", values.data(), Layout::dense(DType::kFloat32, {64})); }).code() ==
        ErrorCode::kInvalidArgument);
  CHECK(error_of([&] { state->read("query_cache"); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("a session predicts with state and backings at once, and never twice") {
  const auto model = load("stateful.mlpackage");
  const auto plain = State::create(model), backed = State::create(model);
  const auto session = Session::create(model, step_contract(), options_for(Mechanism::kRaw));
  PredictOptions options;
  options.state = backed;
  for (std::int32_t position = 0; position < 4; ++position) {
    const auto expected = predict_once(*model, Step(position).inputs(), plain);
    const auto prediction = session->predict(Step(position).inputs(), options);
    CHECK(prediction->path() == Path::kBacking);
    for (const OwnedOutput& output : expected) {
      CHECK(same_bytes(values_of(*prediction, output.name), dense_values(output.memory.get(), output.layout)));
    }
  }
  CHECK(same_bytes(buffer(*plain, "value_cache"), buffer(*backed, "value_cache")));
  const auto full = Session::create(model, step_contract(), options_for(Mechanism::kRaw, Verify::kFull));
  CHECK(error_of([&] { full->predict(Step(0).inputs(), options); }).code() == ErrorCode::kInvalidArgument);
  const auto other = load("stateful.mlpackage");
  CHECK(error_of([&] { predict_once(*other, Step(0).inputs(), plain); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("two calls never share a state") {
  const auto model = load("stateful.mlpackage");
  const auto state = State::create(model);
  std::atomic<int> refused{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        try {
          predict_once(*model, Step(i % 8).inputs(), state);
          done.fetch_add(1);
        } catch (const Error& error) {
          if (error.code() == ErrorCode::kBackingInUse) refused.fetch_add(1);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(done + refused == 200);
  CHECK(done > 0);
}
