// What came back, looked at without reading its values: identity, storage, range, layout, overlap; and the gathering
// copy of what is not in our backing.
// Threads: whoever holds the set. Call inside guarded(). Ownership: results retain what was returned until copied.
#pragma once

#import <CoreML/CoreML.h>

#include <memory>
#include <vector>

#include "coreml/backing_set.h"
#include "coreml/memory_range.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/error.h"
#include "kvbacking/evidence.h"
#include "kvbacking/scan.h"

namespace kvbacking {

struct OutputResult {
  OutputEvidence evidence;
  RetainPtr<MLMultiArray*> array;  // what was returned
  std::optional<Layout> returned;  // its layout, when it is one of ours
  std::size_t returned_byte_count = 0;
  MemoryRange range;  // where it lies
  // What the caller gets to see: the backing or our copy.
  const void* data = nullptr;  // raw, external, copies; a surface has an address only under its lock
  Layout layout;
  std::shared_ptr<void> owner;
  std::shared_ptr<Surface> surface;
  std::optional<ScanResult> scan;
};

// Fills identity, storage, range and (unless verify is off) layout; appends what failed.
OutputResult inspect_output(const SessionPlan& plan, std::size_t output, const BackingSet& set,
                            RetainPtr<MLMultiArray*> array, std::vector<CheckFailure>& failures);

// No two outputs, no output and input, no output and memory that somebody still sees, overlap.
void check_distinct(std::vector<OutputResult>& results, const MemoryRanges& inputs,
                    std::vector<CheckFailure>& failures);

// Accepted: points at the backing. Otherwise gathers the returned bytes into the set's copy memory, and compares when
// `compare`. Appends a failure when what came back cannot be copied.
void take_output(const SessionPlan& plan, std::size_t output, BackingSet& set, OutputResult& result, bool compare,
                 std::vector<CheckFailure>& failures);

}  // namespace kvbacking
