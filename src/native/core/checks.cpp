#include "core/checks.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#ifdef KVB_MUTATIONS
#include <atomic>
#include <cstdio>
#include <cstdlib>
#endif

namespace kvbacking {
namespace {

struct NamedCheck {
  Check check;
  const char* name;
};

constexpr std::array kTable = {
    NamedCheck{Check::kNames, "names"},
    NamedCheck{Check::kDescriptions, "descriptions"},
    NamedCheck{Check::kFlexible, "flexible"},
    NamedCheck{Check::kSurfaceLimits, "surface_limits"},
    NamedCheck{Check::kAllowed, "allowed"},
    NamedCheck{Check::kInputSurface, "input_surface"},
    NamedCheck{Check::kInputs, "inputs"},
    NamedCheck{Check::kBusy, "busy"},
    NamedCheck{Check::kSerialised, "serialised"},
    NamedCheck{Check::kProcess, "process"},
    NamedCheck{Check::kReturnedNames, "returned_names"},
    NamedCheck{Check::kNilValue, "nil_value"},
    NamedCheck{Check::kSameObject, "same_object"},
    NamedCheck{Check::kSameStorage, "same_storage"},
    NamedCheck{Check::kInRange, "in_range"},
    NamedCheck{Check::kShape, "shape"},
    NamedCheck{Check::kStrides, "strides"},
    NamedCheck{Check::kDtype, "dtype"},
    NamedCheck{Check::kDistinct, "distinct"},
    NamedCheck{Check::kFinite, "finite"},
    NamedCheck{Check::kNonZero, "non_zero"},
    NamedCheck{Check::kTailZero, "tail_zero"},
    NamedCheck{Check::kCanaries, "canaries_intact"},
    NamedCheck{Check::kRowGaps, "row_gaps_touched"},
    NamedCheck{Check::kComplete, "complete"},
    NamedCheck{Check::kFresh, "fresh"},
    NamedCheck{Check::kDigest, "digest"},
    NamedCheck{Check::kParity, "parity"},
    NamedCheck{Check::kRepeatable, "repeatable"},
    NamedCheck{Check::kQuarantine, "quarantine"},
    NamedCheck{Check::kLiveCounts, "live_counts"},
};

constexpr auto kChecks = [] {
  std::array<Check, kTable.size()> checks{};
  for (std::size_t i = 0; i < kTable.size(); ++i) checks[i] = kTable[i].check;
  return checks;
}();

// check_name indexes the table by value.
static_assert(
    [] {
      for (std::size_t i = 0; i < kTable.size(); ++i) {
        if (static_cast<std::size_t>(kTable[i].check) != i) return false;
      }
      return static_cast<std::size_t>(Check::kLiveCounts) + 1 == kTable.size();
    }(),
    "the table lists every check in the enumeration's order");

}  // namespace

const char* check_name(Check check) noexcept { return kTable[static_cast<std::size_t>(check)].name; }

std::optional<Check> check_from_name(std::string_view name) noexcept {
  const auto* found =
      std::find_if(kTable.begin(), kTable.end(), [&](const NamedCheck& row) { return row.name == name; });
  if (found == kTable.end()) return std::nullopt;
  return found->check;
}

std::span<const Check> all_checks() noexcept { return kChecks; }

#ifdef KVB_MUTATIONS
namespace {

constexpr int kNoneDisabled = -1;

int disabled_by_environment() noexcept {
  const char* name = std::getenv("KVBACKING_MUTATE");
  if (name == nullptr || *name == '\0') return kNoneDisabled;
  const std::optional<Check> check = check_from_name(name);
  if (!check) {
    std::fprintf(stderr, "kvbacking: KVBACKING_MUTATE=%s names no check\n", name);
    std::abort();
  }
  return static_cast<int>(*check);
}

std::atomic<int>& disabled_check() noexcept {
  static std::atomic<int> disabled{disabled_by_environment()};
  return disabled;
}

}  // namespace

bool check_enabled(Check check) noexcept {
  return disabled_check().load(std::memory_order_relaxed) != static_cast<int>(check);
}

void set_disabled_check(std::optional<Check> check) noexcept {
  disabled_check().store(check ? static_cast<int>(*check) : kNoneDisabled);
}
#endif

}  // namespace kvbacking
