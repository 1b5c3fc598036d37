// The one error type of the native core: a code, a message for a person, and machine-readable details.
// Threads: a value; safe to copy and throw on any thread.
// Ownership: owns its strings. Never holds a framework object.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvbacking {

// One value per Python exception class (src/kvbacking/errors.py).
enum class ErrorCode {
  kInvalidArgument,      // ValueError: wrong type or value, found before anything native ran
  kUnsupportedPlatform,  // UnsupportedPlatformError
  kModel,                // ModelError
  kContract,             // ContractError
  kAllocation,           // AllocationError
  kBackingInUse,         // BackingInUseError
  kBackingIgnored,       // BackingIgnoredError
  kIntegrity,            // IntegrityError
  kPrediction,           // PredictionError (details "domain", "code", "description" come from the NSError verbatim)
  kCertificate,          // CertificateError
};

// One failed check: which output, which check (the evidence field's name), what was expected and what came.
struct CheckFailure {
  std::string output;
  std::string check;
  std::string expected;
  std::string actual;
};

using Detail = std::variant<std::int64_t, double, std::string, std::vector<std::string>>;

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, std::vector<std::pair<std::string, Detail>> details = {},
        std::vector<CheckFailure> failures = {});

  const char* what() const noexcept override { return message_.c_str(); }
  ErrorCode code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  // Attribute name -> value; the Python translator sets each as an attribute of the exception.
  const std::vector<std::pair<std::string, Detail>>& details() const noexcept { return details_; }
  // Every failed check of an integrity or contract error; empty for the others.
  const std::vector<CheckFailure>& failures() const noexcept { return failures_; }

 private:
  ErrorCode code_;
  std::string message_;
  std::vector<std::pair<std::string, Detail>> details_;
  std::vector<CheckFailure> failures_;
};

}  // namespace kvbacking
