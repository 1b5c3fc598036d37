// The framework misbehaves, one way at a time, and the session says so. Simulator only: a real framework has no switch.
#include <doctest/doctest.h>

#include "coreml_support.h"

#if __has_include("framework/faults.h")
#include "framework/control.h"
#include "framework/faults.h"

using namespace kvbacking;
using namespace kvbacking::test;

namespace {

// Switched on for a scope.
struct Faulty {
  explicit Faulty(const std::string& json) { coremlsim::set_faults(json); }
  ~Faulty() { coremlsim::set_faults("{}"); }
  Faulty(const Faulty&) = delete;
  Faulty& operator=(const Faulty&) = delete;
};

const std::vector<Mechanism> kBacked = {Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool};

// One good prediction of other inputs first, so that there is something stale to see.
Error failure_of(const std::shared_ptr<Model>& model, Mechanism mechanism, Verify verify, const std::string& faults) {
  CAPTURE(std::string(faults));
  const auto session = Session::create(model, projection_contract(), options_for(mechanism, verify));
  session->predict(Features(1).inputs());
  const Faulty faulty(faults);
  const Error error = error_of([&] { session->predict(Features(2).inputs()); });
  if (error.code() != ErrorCode::kIntegrity) return error;
  const SessionStats stats = session->stats();
  CHECK(stats.failed == 1);
  CHECK(stats.quarantined == 1);
  CHECK(stats.degraded_reason.find(error.failures().front().output) != std::string::npos);
  coremlsim::set_faults("{}");
  CHECK(session->predict(Features(3).inputs())->path() == Path::kFramework);  // the control takes over
  return error;
}

}  // namespace

TEST_CASE("an ignored backing is copied, or refused, and never taken for a used one") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : kBacked) {
    for (const Verify verify : {Verify::kOff, Verify::kLayout, Verify::kScan, Verify::kFull}) {
      for (const char* fault : {"ignore", "ignore_same_address", "swap_storage", "padded_return"}) {
        CAPTURE(std::string(mechanism_name(mechanism)));
        CAPTURE(std::string(fault));
        CAPTURE(static_cast<int>(verify));
        SessionOptions options = options_for(mechanism, verify);
        const auto session = Session::create(model, projection_contract(), options);
        options.on_ignored = OnIgnored::kRaise;
        const auto strict = Session::create(model, projection_contract(), options);
        const Features features(2);
        const auto k = control_values(*model, features, "cross_k"), v = control_values(*model, features, "cross_v");
        {
          const Faulty faulty("{\"" + std::string(fault) + "\": [\"cross_v\"]}");
          const auto prediction = session->predict(features.inputs());
          CHECK(prediction->path() == Path::kCopy);
          CHECK(prediction->evidence("cross_k").accepted == true);
          const OutputEvidence& evidence = prediction->evidence("cross_v");
          CHECK(evidence.accepted == false);
          CHECK(evidence.bytes_copied == 224);
          const std::string name = fault;
          CHECK(evidence.same_object == (name == "swap_storage"));
          CHECK(evidence.same_storage == (name == "ignore_same_address"));
          CHECK(same_bytes(values_of(*prediction, "cross_k"), k));
          CHECK(same_bytes(values_of(*prediction, "cross_v"), v));
          CHECK(session->stats().ignored == 1);
          const Error error = error_of([&] { strict->predict(features.inputs()); });
          CHECK(error.code() == ErrorCode::kBackingIgnored);
        }
        for (const auto& healthy : {session, strict}) {
          const auto prediction = healthy->predict(features.inputs());
          CHECK(prediction->path() == Path::kBacking);
          CHECK(same_bytes(values_of(*prediction, "cross_v"), v));
        }
      }
    }
  }
}

TEST_CASE("bytes that cannot be trusted fail the check that looks for them") {
  const auto model = load("projection.mlpackage");
  struct Expectation {
    const char* faults;
    const char* check;
  };
  const std::vector<Expectation> expectations = {
      {R"({"partial_write": {"cross_v": "head"}})", "complete"},
      {R"({"partial_write": {"cross_v": "middle"}})", "complete"},
      {R"({"partial_write": {"cross_v": "one_row"}})", "complete"},
      {R"({"stale": ["cross_v"]})", "complete"},
      {R"({"dirty_tail": {"cross_v": "byte"}})", "tail_zero"},
      {R"({"dirty_tail": {"cross_v": "negative_zero"}})", "tail_zero"},
      {R"({"nan": {"cross_v": "first"}})", "finite"},
      {R"({"nan": {"cross_v": "last"}})", "finite"},
      {R"({"inf": {"cross_v": "middle"}})", "finite"},
      {R"({"all_zero": ["cross_v"]})", "non_zero"},
      {R"({"alias_outputs": ["cross_k", "cross_v"]})", "distinct"},
  };
  for (const Mechanism mechanism : kBacked) {
    for (const Verify verify : {Verify::kScan, Verify::kFull}) {
      for (const Expectation& expectation : expectations) {
        CAPTURE(std::string(mechanism_name(mechanism)));
        CAPTURE(std::string(expectation.faults));
        const Error error = failure_of(model, mechanism, verify, expectation.faults);
        CAPTURE(error.message());
        CHECK(error.code() == ErrorCode::kIntegrity);
        CHECK(has_failure(error, "cross_v", expectation.check));
      }
    }
  }
}

TEST_CASE("the previous prediction's values are not fresh when the input changed, and are when it did not") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    CAPTURE(std::string(mechanism_name(mechanism)));
    const auto session = Session::create(model, projection_contract(), options_for(mechanism));
    const Faulty faulty(R"({"stale_previous": ["cross_v"]})");
    session->predict(Features(1).inputs());
    CHECK_FALSE(session->predict(Features(1).inputs())->evidence("cross_v").fresh.has_value());
    const Error error = error_of([&] { session->predict(Features(2).inputs()); });
    CHECK(error.code() == ErrorCode::kIntegrity);
    CHECK(has_failure(error, "cross_v", "fresh"));
    CHECK_FALSE(has_failure(error, "cross_k", "fresh"));
  }
}

TEST_CASE("what is around the payload is watched") {
  const auto model = load("projection.mlpackage");
  for (const char* faults : {R"({"overrun": {"cross_v": "end"}})", R"({"underrun": ["cross_v"]})"}) {
    const Error error = failure_of(model, Mechanism::kRaw, Verify::kScan, faults);
    CHECK(error.code() == ErrorCode::kIntegrity);
    CHECK(has_failure(error, "cross_v", "canaries_intact"));
  }
  for (const Mechanism mechanism : {Mechanism::kSurface, Mechanism::kPool}) {
    const auto session = Session::create(model, projection_contract(), options_for(mechanism));
    CHECK(session->predict(Features(1).inputs())->evidence("cross_v").row_gaps_touched == false);
    const Faulty faulty(R"({"overrun": {"cross_v": "row_gaps"}})");
    const auto prediction = session->predict(Features(2).inputs());  // informs, never fails
    CHECK(prediction->evidence("cross_v").row_gaps_touched == true);
    CHECK(prediction->evidence("cross_k").row_gaps_touched == false);
  }
}

TEST_CASE("a single element that was not written fails parity") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : kBacked) {
    SessionOptions options = options_for(mechanism, Verify::kFull);
    const auto session = Session::create(model, projection_contract(), options);
    session->predict(Features(1).inputs());
    const Faulty faulty(R"({"partial_write": {"cross_v": "one_element"}, "times": 1})");
    const Error error = error_of([&] { session->predict(Features(2).inputs()); });
    CAPTURE(std::string(mechanism_name(mechanism)));
    CAPTURE(error.message());
    CHECK(error.code() == ErrorCode::kIntegrity);
  }
}

TEST_CASE("the returned layout is checked, not the one that was asked for") {
  const auto model = load("projection.mlpackage");
  struct Expectation {
    const char* fault;
    const char* check;
  };
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    for (const Verify verify : {Verify::kLayout, Verify::kScan}) {
      for (const Expectation& expectation :
           std::vector<Expectation>{{"wrong_dtype", "dtype"}, {"larger_shape", "shape"}}) {
        CAPTURE(std::string(mechanism_name(mechanism)));
        CAPTURE(std::string(expectation.fault));
        const auto session = Session::create(model, projection_contract(), options_for(mechanism, verify));
        const Faulty faulty("{\"" + std::string(expectation.fault) + "\": [\"cross_v\"]}");
        const Error error = error_of([&] { session->predict(Features(2).inputs()); });
        CAPTURE(error.message());
        CHECK(error.code() == ErrorCode::kIntegrity);
        CHECK(has_failure(error, "cross_v", expectation.check));
      }
    }
  }
  const Faulty faulty(R"({"wrong_strides": ["cross_v"]})");
  const auto session = Session::create(model, projection_contract(), options_for(Mechanism::kRaw, Verify::kLayout));
  const Error error = error_of([&] { session->predict(Features(2).inputs()); });
  CAPTURE(error.message());
  CHECK(error.code() == ErrorCode::kIntegrity);
  CHECK(has_failure(error, "cross_v", "strides"));
}

TEST_CASE("outputs that are missing, empty or too many are named") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    CAPTURE(std::string(mechanism_name(mechanism)));
    for (const char* fault : {"missing_output", "nil_value"}) {
      const auto session = Session::create(model, projection_contract(), options_for(mechanism, Verify::kOff));
      const Faulty faulty("{\"" + std::string(fault) + "\": [\"cross_v\"]}");
      const Error error = error_of([&] { session->predict(Features(2).inputs()); });
      CHECK(error.code() == ErrorCode::kIntegrity);
      CHECK(has_failure(error, "cross_v", std::string(fault) == "nil_value" ? "nil_value" : "returned_names"));
      CHECK(error_of([&] { predict_once(*model, Features(2).inputs()); }).code() == ErrorCode::kIntegrity);
    }
    const auto session = Session::create(model, projection_contract(), options_for(mechanism, Verify::kOff));
    const Faulty faulty(R"({"extra_output": true})");
    const Error error = error_of([&] { session->predict(Features(2).inputs()); });
    CHECK(error.code() == ErrorCode::kIntegrity);
    CHECK(error.failures().front().check == "returned_names");
  }
}

TEST_CASE("an output over an input is refused") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : kBacked) {
    const auto session = Session::create(model, projection_contract(), options_for(mechanism, Verify::kLayout));
    const Faulty faulty(R"({"alias_input": ["cross_v"]})");
    const Error error = error_of([&] { session->predict(Features(2).inputs()); });
    CAPTURE(std::string(mechanism_name(mechanism)));
    CAPTURE(error.message());
    CHECK(error.code() == ErrorCode::kIntegrity);
  }
}

TEST_CASE("errors and exceptions of the framework come through verbatim, and the session goes on") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    const auto session = Session::create(model, projection_contract(), options_for(mechanism));
    for (const char* faults : {R"({"prediction_error": true})", R"({"exception": "predict"})"}) {
      CAPTURE(std::string(faults));
      {
        const Faulty faulty(faults);
        const Error error = error_of([&] { session->predict(Features(2).inputs()); });
        CHECK(error.code() == ErrorCode::kPrediction);
        REQUIRE(error.details().size() == 3);
        CHECK_FALSE(std::get<std::string>(error.details()[0].second).empty());
        CHECK_FALSE(std::get<std::string>(error.details()[2].second).empty());
        CHECK(error_of([&] { predict_once(*model, Features(2).inputs()); }).code() == ErrorCode::kPrediction);
      }
      session->predict(Features(2).inputs());
    }
    CHECK(session->stats().failed == 2);
    CHECK(session->stats().degraded_reason.empty());
  }
}

TEST_CASE("a backing that is not allowed is refused before any prediction") {
  const auto model = load("projection.mlpackage");
  const Faulty faulty(R"({"disallow": ["cross_v"]})");
  for (const Mechanism mechanism : kBacked) {
    const Error error = error_of([&] { Session::create(model, projection_contract(), options_for(mechanism)); });
    CHECK(error.code() == ErrorCode::kContract);
    CHECK(has_failure(error, "cross_v", "allowed"));
    CHECK_FALSE(has_failure(error, "cross_k", "allowed"));
  }
}

TEST_CASE("a new wrapper that is not allowed is refused each time, and proposed again once it is allowed") {
  const auto model = load("projection.mlpackage");
  for (const Mechanism mechanism : kBacked) {
    CAPTURE(std::string(mechanism_name(mechanism)));
    SessionOptions options = options_for(mechanism);
    options.depth = 1;
    const auto session = Session::create(model, projection_contract(), options);
    {
      const Faulty faulty(R"({"ignore": true})");  // the set is wrapped anew before the next prediction
      CHECK(session->predict(Features(1).inputs())->path() == Path::kCopy);
    }
    {
      const Faulty faulty(R"({"disallow": ["cross_v"]})");
      for (int i = 0; i < 2; ++i) {
        const Error error = error_of([&] { session->predict(Features(2).inputs()); });
        CHECK(error.code() == ErrorCode::kContract);
        CHECK(has_failure(error, "cross_v", "allowed"));
      }
    }
    CHECK(session->predict(Features(3).inputs())->path() == Path::kBacking);
  }
}

TEST_CASE("a surface that stays locked costs one prediction in reuse mode same, none in the others") {
  const auto model = load("projection.mlpackage");
  for (const Reuse reuse : {Reuse::kSame, Reuse::kRewrap, Reuse::kNew}) {
    CAPTURE(static_cast<int>(reuse));
    SessionOptions options = options_for(Mechanism::kSurface);
    options.reuse = reuse;
    options.depth = 1;
    const auto session = Session::create(model, projection_contract(), options);
    const Faulty faulty(R"({"sticky_after_cpu_lock": "array"})");
    session->predict(Features(1).inputs());
    const Error error = error_of([&] { session->predict(Features(2).inputs()); });
    CHECK(error.code() == (reuse == Reuse::kSame ? ErrorCode::kPrediction : ErrorCode::kCertificate));
    CHECK(session->predict(Features(3).inputs())->path() == Path::kBacking);  // made anew after the failure
  }
}

TEST_CASE("arrays that the framework holds longer are waited for, and everything goes in the end") {
  const auto before = live_counts();
  {
    const Faulty faulty(R"({"late_release": 300})");
    const auto model = load("projection.mlpackage");
    for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface}) {
      const auto session = Session::create(model, projection_contract(), options_for(mechanism));
      for (int i = 0; i < 20; ++i) {
        const Features features(i);
        CHECK(same_bytes(values_of(*session->predict(features.inputs()), "cross_k"),
                         control_values(*model, features, "cross_k")));
      }
    }
    SessionOptions options = options_for(Mechanism::kPool);
    options.depth = 1;
    const auto session = Session::create(model, projection_contract(), options);
    session->predict(Features(1).inputs());
    CHECK(error_of([&] { session->predict(Features(2).inputs()); }).code() == ErrorCode::kBackingInUse);
    CHECK(eventually(
        [&] { return error_of([&] { session->predict(Features(2).inputs()); }).code() != ErrorCode::kBackingInUse; }));
  }
  CHECK(counts_return_to(before));
}

TEST_CASE("later API that the system does not have is unsupported, and the rest works") {
  CHECK(host_info().supports_state);
  struct Hidden {
    Hidden() { coremlsim::hide_api("14"); }
    ~Hidden() { coremlsim::hide_api(""); }
  } hidden;
  CHECK_FALSE(host_info().supports_state);
  CHECK_FALSE(host_info().supports_compute_plan);
  const auto model = load("projection.mlpackage");
  CHECK(model->functions().empty());
  CHECK(error_of([&] { State::create(model); }).code() == ErrorCode::kUnsupportedPlatform);
  LoadOptions options;
  options.function = "main";
  CHECK(error_of([&] { Model::load(data_path("projection.mlpackage"), options); }).code() ==
        ErrorCode::kUnsupportedPlatform);
  for (const Mechanism mechanism : {Mechanism::kFramework, Mechanism::kRaw, Mechanism::kSurface, Mechanism::kPool}) {
    const auto session = Session::create(model, projection_contract(), options_for(mechanism));
    CHECK(session->predict(Features(1).inputs())->evidence().size() == 2);
  }
}
#endif
