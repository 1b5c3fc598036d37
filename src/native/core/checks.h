// The table of checks and their mutation switches: which single check a mutation build leaves out at run time.
// Threads: check_enabled from any thread; set_disabled_check while nothing else runs.
// Ownership: none. In a normal build check_enabled is constexpr true and no switch exists.
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace kvbacking {

// One value per refusal or per evidence field. The name of a check is its mutant's name.
enum class Check {
  // before the prediction
  kNames,          // the model's output names are exactly the contract's
  kDescriptions,   // shape and dtype of the output descriptions
  kFlexible,       // no flexible output gets a backing
  kSurfaceLimits,  // surface dimensions within what the platform allows
  kAllowed,        // isAllowedValue: for every proposal
  kInputSurface,   // no surface that was an input is proposed
  kInputs,         // names, shapes and dtypes of the inputs
  kBusy,           // a set that somebody can still see is not handed out
  kSerialised,     // one prediction per model at a time
  kProcess,        // no use in a child after fork()
  // what came back
  kReturnedNames,  // no output missing, none extra
  kNilValue,       // every returned feature has a multi-array
  kSameObject,
  kSameStorage,
  kInRange,
  kShape,
  kStrides,
  kDtype,
  kDistinct,
  // the bytes
  kFinite,
  kNonZero,
  kTailZero,
  kCanaries,
  kRowGaps,
  kComplete,
  kFresh,
  kDigest,  // the digest covers all logical bytes, not a prefix
  kParity,
  kRepeatable,
  // afterwards
  kQuarantine,  // a set that failed a check is never handed out again
  kLiveCounts,  // native objects do not accumulate
};

// "same_object" for kSameObject, and so on: evidence field names where there is a field.
const char* check_name(Check check) noexcept;
std::optional<Check> check_from_name(std::string_view name) noexcept;
std::span<const Check> all_checks() noexcept;

#ifdef KVB_MUTATIONS
// True unless this is the one check that is off: KVBACKING_MUTATE=name in the environment (read once; an unknown name
// ends the process, because a mutation run that mutates nothing proves nothing) or set_disabled_check.
bool check_enabled(Check check) noexcept;
void set_disabled_check(std::optional<Check> check) noexcept;
#else
constexpr bool check_enabled(Check) noexcept { return true; }
#endif

}  // namespace kvbacking
