// The checks on the bytes of an output (verify levels scan and full), and freshness across predictions.
// Threads: whoever holds the set; Freshness has its own lock. Ownership: none.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coreml/backing_set.h"
#include "coreml/inputs.h"
#include "coreml/inspect.h"
#include "kvbacking/error.h"

namespace kvbacking {

// A control output to compare with: the bytes of another prediction of the same inputs.
struct Reference {
  const void* data = nullptr;
  Layout layout;
};

// Fills finite, non_zero, min, max, tail_zero, digest, canaries_intact, row_gaps_touched, complete (and parity when
// there is a reference); appends what failed. Locks a surface for reading while it runs.
void scan_output(const SessionPlan& plan, std::size_t output, const BackingSet& set, std::int64_t live,
                 const std::optional<Reference>& reference, OutputResult& result, std::vector<CheckFailure>& failures);

// Remembers the last good prediction's digests: an output must change when an input that it is sensitive to does.
class Freshness {
 public:
  void check(const SessionPlan& plan, const PreparedInputs& inputs, std::vector<OutputResult>& results,
             std::vector<CheckFailure>& failures) const;
  void remember(const PreparedInputs& inputs, const std::vector<OutputResult>& results);

 private:
  using Named = std::vector<std::pair<std::string, DigestBytes>>;
  mutable std::mutex mutex_;
  Named inputs_, outputs_;
};

}  // namespace kvbacking
