// Every mechanism end to end: evidence, depth, lifetimes, refusals, live lengths, caller-owned storage.
#include <doctest/doctest.h>

#include <algorithm>

#include "coreml_support.h"
#include "kvbacking/allocation.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {

struct Case {
  Mechanism mechanism;
  Reuse reuse = Reuse::kNew;
};
const std::vector<Case> kBacked = {{Mechanism::kRaw},
                                   {Mechanism::kSurface, Reuse::kNew},
                                   {Mechanism::kSurface, Reuse::kRewrap},
                                   {Mechanism::kSurface, Reuse::kSame},
                                   {Mechanism::kPool}};

SessionOptions options_of(const Case& c, Verify verify) {
  SessionOptions options = options_for(c.mechanism, verify);
  options.reuse = c.reuse;
  return options;
}

}  // namespace

TEST_CASE("a backing that is used is proven, whatever the mechanism and the level") {
  const auto model = load("projection.mlpackage");
  for (const Case& c : kBacked) {
    for (const Verify verify : {Verify::kOff, Verify::kLayout, Verify::kScan, Verify::kFull}) {
      CAPTURE(mechanism_name(c.mechanism));
      CAPTURE(static_cast<int>(c.reuse));
      CAPTURE(static_cast<int>(verify));
      const auto session = Session::create(model, projection_contract(), options_of(c, verify));
      for (int call = 0; call < 4; ++call) {
        const Features features(call);
        const auto prediction = session->predict(features.inputs());
        CHECK(prediction->path() == Path::kBacking);
        CHECK(prediction->names() == std::vector<std::string>{"cross_k", "cross_v"});
        for (const OutputEvidence& evidence : prediction->evidence()) {
          CHECK(evidence.proposed);
          CHECK(evidence.allowed == true);
          CHECK(evidence.accepted == true);
          CHECK(evidence.same_object == true);
          CHECK(evidence.same_storage == true);
          CHECK(evidence.direct_write == "unknown");
          CHECK(evidence.bytes_copied == 0);
          CHECK(evidence.layout_ok.has_value() == (verify != Verify::kOff));
          const bool scanned = verify == Verify::kScan || verify == Verify::kFull;
          CHECK(evidence.digest.has_value() == scanned);
          CHECK(evidence.finite.has_value() == scanned);
          CHECK(evidence.canaries_intact.has_value() == (scanned && c.mechanism == Mechanism::kRaw));
          const bool sentinels = scanned && c.reuse != Reuse::kSame;
          CHECK(evidence.complete.has_value() == sentinels);
          CHECK(evidence.fresh.has_value() == (scanned && call > 0));
          CHECK(evidence.tail_zero.has_value() == scanned);
        }
        CHECK(same_bytes(values_of(*prediction, "cross_k"), control_values(*model, features, "cross_k")));
        CHECK(same_bytes(values_of(*prediction, "cross_v"), control_values(*model, features, "cross_v")));
      }
      const SessionStats stats = session->stats();
      CHECK(stats.predictions == 4);
      CHECK(stats.accepted == 8);
      CHECK(stats.copied == 0);
      CHECK(stats.degraded_reason.empty());
    }
  }
}

TEST_CASE("equal values have equal digests in every form") {
  const auto model = load("projection.mlpackage");
  const Features features(3);
  std::vector<std::string> digests;
  for (const Case& c : kBacked) {
    const auto session = Session::create(model, projection_contract(), options_of(c, Verify::kScan));
    digests.push_back(*session->predict(features.inputs())->evidence("cross_k").digest);
  }
  const auto control = Session::create(model, projection_contract(), options_for(Mechanism::kFramework));
  const auto prediction = control->predict(features.inputs());
  CHECK(prediction->path() == Path::kFramework);
  CHECK_FALSE(prediction->evidence("cross_k").proposed);
  CHECK_FALSE(prediction->evidence("cross_k").accepted.has_value());
  CHECK(prediction->evidence("cross_k").bytes_copied == 2 * 7 * 8 * 2);
  digests.push_back(*prediction->evidence("cross_k").digest);
  for (const std::string& digest : digests) CHECK(digest == digests.front());
}

TEST_CASE("a set is busy while its prediction or a view lives, and closing changes nothing for them") {
  const auto model = load("projection.mlpackage");
  const Features features(4);
  const auto before = live_counts();
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    CAPTURE(mechanism_name(mechanism));
    {
      auto session = Session::create(model, projection_contract(), options_for(mechanism));
      auto first = session->predict(features.inputs());
      auto second = session->predict(features.inputs());
      const Error error = error_of([&] { session->predict(features.inputs()); });
      CHECK(error.code() == ErrorCode::kBackingInUse);
      auto view = first->view("cross_k");
      const auto kept = dense_values(view->data(), view->layout());
      first->release();
      first->release();
      CHECK(first->released());
      CHECK(error_of([&] { first->view("cross_k"); }).code() == ErrorCode::kBackingInUse);
      CHECK(error_of([&] { session->predict(features.inputs()); }).code() == ErrorCode::kBackingInUse);
      CHECK(session->stats().backing_in_use == 2);
      view.reset();
      first = session->predict(Features(5).inputs());
      view = first->view("cross_v");
      first.reset();
      session->close();
      session->close();
      CHECK(session->closed());
      CHECK(error_of([&] { session->predict(features.inputs()); }).code() == ErrorCode::kInvalidArgument);
      session.reset();
      CHECK(same_bytes(dense_values(view->data(), view->layout()), control_values(*model, Features(5), "cross_v")));
      CHECK(same_bytes(values_of(*second, "cross_k"), kept));
    }
    predict_once(*model, features.inputs());  // the framework lets go of what it held
  }
  CHECK(eventually([&] {
    auto now = live_counts();
    for (const char* pooled : {"input", "allocation", "array"}) now[pooled] = before.at(pooled);  // the model's own
    return now == before;
  }));
}

TEST_CASE("everything that a contract gets wrong is said at once, before any prediction") {
  const auto model = load("projection.mlpackage");
  Contract contract = projection_contract();
  contract.outputs[0].name = "cross_q";
  contract.outputs[1].shape = {2, 7, 9};
  contract.outputs[1].dtype = DType::kFloat32;
  contract.live = 9;
  contract.sensitive_to = {"sound"};
  const Error error = error_of([&] { Session::create(model, contract, options_for(Mechanism::kRaw)); });
  CHECK(error.code() == ErrorCode::kContract);
  CHECK(has_failure(error, "cross_q", "names"));
  CHECK(has_failure(error, "cross_k", "names"));
  CHECK(has_failure(error, "cross_v", "descriptions"));
  CHECK(has_failure(error, "cross_v", "live"));
  CHECK(has_failure(error, "sound", "sensitive_to"));
}

TEST_CASE("a flexible output gets no backing") {
  const auto model = load("flexible.mlpackage");
  Contract contract;
  for (const TensorSpec& output : model->outputs())
    contract.outputs.push_back({output.name, DType::kFloat16, {1, 1, 1}});
  contract.axis = 1;
  contract.live = 1;
  const Error error = error_of([&] { Session::create(model, contract, options_for(Mechanism::kRaw)); });
  CHECK(error.code() == ErrorCode::kContract);
  for (const TensorSpec& output : model->outputs()) CHECK(has_failure(error, output.name, "flexible"));
}

TEST_CASE("an output may be copied instead of backed") {
  const auto model = load("projection.mlpackage");
  Contract contract = projection_contract();
  contract.outputs.pop_back();
  contract.unbacked = {"cross_v"};
  const Features features(6);
  const auto session = Session::create(model, contract, options_for(Mechanism::kRaw));
  const auto prediction = session->predict(features.inputs());
  CHECK(prediction->path() == Path::kBacking);
  CHECK(prediction->evidence("cross_k").accepted == true);
  CHECK_FALSE(prediction->evidence("cross_v").proposed);
  CHECK(prediction->evidence("cross_v").bytes_copied > 0);
  CHECK(same_bytes(values_of(*prediction, "cross_v"), control_values(*model, features, "cross_v")));
}

TEST_CASE("a live length may be given per call") {
  const auto model = load("projection.mlpackage");
  Contract contract = projection_contract();
  contract.tail = TailRule::kAny;
  const auto session = Session::create(model, contract, options_for(Mechanism::kRaw));
  PredictOptions options;
  options.live = 2;
  const auto prediction = session->predict(Features(7).inputs(), options);
  CHECK(prediction->live() == 2);
  CHECK_FALSE(prediction->evidence("cross_k").tail_zero.has_value());
  options.live = 8;
  CHECK(error_of([&] { session->predict(Features(7).inputs(), options); }).code() == ErrorCode::kInvalidArgument);
}

TEST_CASE("a tail that must be zero and is not is named with its first dirty element") {
  const auto model = load("projection.mlpackage");
  Contract contract = projection_contract();
  contract.live = 4;  // the fifth row is part of what must be zero now
  const auto session = Session::create(model, contract, options_for(Mechanism::kRaw));
  const Error error = error_of([&] { session->predict(Features(8).inputs()); });
  CHECK(error.code() == ErrorCode::kIntegrity);
  CHECK(has_failure(error, "cross_k", "tail_zero"));
  CHECK(has_failure(error, "cross_v", "tail_zero"));
  const SessionStats stats = session->stats();
  CHECK(stats.quarantined == 1);
  CHECK_FALSE(stats.degraded_reason.empty());
  // The control shows the same bytes, so it is refused too; the session stays usable for a contract that holds.
  CHECK(error_of([&] { session->predict(Features(8).inputs()); }).code() == ErrorCode::kIntegrity);
  CHECK(session->stats().quarantined == 1);
}

TEST_CASE("storage of the caller is a backing, padded rows included, and is let go of") {
  const auto model = load("projection.mlpackage");
  const Layout padded = Layout::padded_rows(DType::kFloat16, {2, 7, 8}, 16);
  std::vector<_Float16> memory(4 * 14 * 16);
  auto owner = std::make_shared<int>(0);
  std::weak_ptr<int> watch = owner;
  SessionOptions options = options_for(Mechanism::kExternal);
  for (std::size_t set = 0; set < 2; ++set) {
    options.external.push_back({{"cross_k", memory.data() + set * 448, padded, owner},
                                {"cross_v", memory.data() + set * 448 + 224, padded, owner}});
  }
  owner.reset();
  {
    auto session = Session::create(model, projection_contract(), options);
    options.external.clear();
    const auto prediction = session->predict(Features(9).inputs());
    CHECK(prediction->path() == Path::kBacking);
    CHECK(prediction->evidence("cross_k").mechanism == "external");
    const auto view = prediction->view("cross_k");
    CHECK(view->data() == memory.data());
    CHECK(view->layout() == padded);
    CHECK(same_bytes(values_of(*prediction, "cross_k"), control_values(*model, Features(9), "cross_k")));
    session.reset();
    CHECK_FALSE(watch.expired());
  }
  CHECK(eventually([&] { return watch.expired(); }));
}

TEST_CASE("storage of the caller that overlaps or does not fit is refused") {
  const auto model = load("projection.mlpackage");
  std::vector<_Float16> memory(112 + 111);
  const Layout dense = Layout::dense(DType::kFloat16, {2, 7, 8});
  SessionOptions options = options_for(Mechanism::kExternal);
  options.depth = 1;
  options.external = {{{"cross_k", memory.data(), dense, nullptr}, {"cross_v", memory.data() + 111, dense, nullptr}}};
  CHECK(has_failure(error_of([&] { Session::create(model, projection_contract(), options); }), "cross_v", "distinct"));
  options.external = {{{"cross_k", memory.data(), dense, nullptr}}};
  CHECK(has_failure(error_of([&] { Session::create(model, projection_contract(), options); }), "cross_v", "external"));
}

TEST_CASE("payload fills reach the payload and are gone after the prediction") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : {Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    const auto session = Session::create(model, projection_contract(), options_for(mechanism));
    PredictOptions options;
    options.fill_byte = std::uint8_t{0x55};
    const std::string first = *session->predict(Features(1).inputs(), options)->evidence("cross_v").digest;
    options.fill_byte = std::uint8_t{0xAA};
    CHECK(*session->predict(Features(1).inputs(), options)->evidence("cross_v").digest == first);
  }
}

TEST_CASE("an allocation that fails is an allocation error, and nothing leaks") {
  const auto model = load("projection.mlpackage");
  const auto before = live_counts();
  Allocation::fail_nth_create(3);
  CHECK(error_of([&] { Session::create(model, projection_contract(), options_for(Mechanism::kRaw)); }).code() ==
        ErrorCode::kAllocation);
  Allocation::fail_nth_create(0);
  CHECK(counts_return_to(before));
}
