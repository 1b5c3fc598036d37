#include <doctest/doctest.h>

#include <set>
#include <string>

#include "core/checks.h"

using namespace kvbacking;

TEST_CASE("every check has its own name and is found by it") {
  std::set<std::string> names;
  for (const Check check : all_checks()) {
    names.insert(check_name(check));
    CHECK(check_from_name(check_name(check)) == check);
  }
  CHECK(names.size() == all_checks().size());
  CHECK_FALSE(check_from_name("no such check").has_value());
}

#ifdef KVB_MUTATIONS
TEST_CASE("a mutation build switches off exactly the check that is named") {
  for (const Check off : all_checks()) {
    set_disabled_check(off);
    for (const Check check : all_checks()) CHECK(check_enabled(check) == (check != off));
  }
  set_disabled_check(std::nullopt);
  for (const Check check : all_checks()) CHECK(check_enabled(check));
}
#else
static_assert(check_enabled(Check::kFinite), "a normal build has no switch");
#endif
