// Shared by the Objective-C++ suites: the committed sample packages, their contracts and inputs, live-object counts.
// Threads: each test its own. Ownership: values and shared_ptr only.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvbacking/host.h"
#include "kvbacking/session.h"

namespace kvbacking::test {

inline std::string data_path(const char* name) { return std::string(KVB_TEST_DATA) + "/" + name; }

inline std::shared_ptr<Model> load(const char* name) { return Model::load(data_path(name), {}); }

// features float16 [1, 5, 8] -> cross_k, cross_v float16 [2, 7, 8] with two zero rows at the end.
struct Features {
  std::vector<_Float16> values;
  explicit Features(int seed) : values(5 * 8) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<_Float16>(static_cast<float>((static_cast<int>(i) * 7 + seed * 13) % 31 - 15) / 16.0F);
    }
  }
  std::vector<InputArray> inputs() const {
    return {{"features", values.data(), Layout::dense(DType::kFloat16, {1, 5, 8})}};
  }
};

inline Contract projection_contract() {
  Contract contract;
  contract.outputs = {{"cross_k", DType::kFloat16, {2, 7, 8}}, {"cross_v", DType::kFloat16, {2, 7, 8}}};
  contract.live = 5;
  contract.axis = 1;
  contract.max_abs = 1e-3;
  contract.sensitive_to = {"features"};
  return contract;
}

inline SessionOptions options_for(Mechanism mechanism, Verify verify = Verify::kScan) {
  SessionOptions options;
  options.mechanism = mechanism;
  options.verify = verify;
  return options;
}

inline std::vector<_Float16> dense_values(const void* data, const Layout& layout) {
  std::vector<_Float16> values(static_cast<std::size_t>(layout.element_count()));
  std::size_t at = 0;
  for (std::int64_t row = 0; row < layout.row_count(); ++row) {
    std::int64_t offset = 0, rest = row;
    for (std::size_t d = layout.shape.size() - 1; d-- > 0;) {
      offset += rest % layout.shape[d] * layout.element_strides[d];
      rest /= layout.shape[d];
    }
    for (std::int64_t i = 0; i < layout.row_length(); ++i) {
      values[at++] = static_cast<const _Float16*>(data)[offset + i * layout.element_strides.back()];
    }
  }
  return values;
}

inline std::vector<_Float16> values_of(const Prediction& prediction, const std::string& name) {
  const auto view = prediction.view(name);
  return dense_values(view->data(), view->layout());
}

inline std::vector<_Float16> control_values(const Model& model, const Features& features, const std::string& name) {
  for (const OwnedOutput& output : predict_once(model, features.inputs())) {
    if (output.name == name) return dense_values(output.memory.get(), output.layout);
  }
  return {};
}

inline bool same_bytes(const std::vector<_Float16>& a, const std::vector<_Float16>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(_Float16)) == 0;
}

// Deallocators may run on another thread a little later: waits until `good` or two seconds have passed.
inline bool eventually(const std::function<bool()>& good) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  while (!good()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline bool counts_return_to(const std::map<std::string, std::int64_t>& before) {
  return eventually([&] { return live_counts() == before; });
}

template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorCode::kCertificate, "nothing was thrown");
}

inline bool has_failure(const Error& error, const std::string& output, const std::string& check) {
  for (const CheckFailure& failure : error.failures()) {
    if (failure.output == output && failure.check == check) return true;
  }
  return false;
}

}  // namespace kvbacking::test
