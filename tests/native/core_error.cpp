#include <doctest/doctest.h>

#include <string>

#include "kvbacking/error.h"

using namespace kvbacking;

TEST_CASE("an error carries code, message, details and failures through a throw") {
  try {
    throw Error(ErrorCode::kIntegrity, "cross_v: tail is dirty", {{"index", std::int64_t{7}}, {"ratio", 0.5}},
                {{"cross_v", "tail_zero", "0", "1"}});
  } catch (const std::exception& caught) {
    const auto* error = dynamic_cast<const Error*>(&caught);
    REQUIRE(error != nullptr);
    CHECK(std::string(error->what()) == "cross_v: tail is dirty");
    CHECK(error->code() == ErrorCode::kIntegrity);
    REQUIRE(error->details().size() == 2);
    CHECK(std::get<std::int64_t>(error->details()[0].second) == 7);
    CHECK(std::get<double>(error->details()[1].second) == 0.5);
    REQUIRE(error->failures().size() == 1);
    CHECK(error->failures()[0].check == "tail_zero");
  }
}
