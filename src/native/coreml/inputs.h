// Caller arrays as a feature provider over native buffers of ours.
// Threads: any; call inside guarded(). Ownership: the provider's arrays hold their buffers; caller memory is only read
// during the call.
#pragma once

#import <CoreML/CoreML.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "coreml/memory_range.h"
#include "coreml/model_impl.h"
#include "coreml/retain_ptr.h"
#include "kvbacking/error.h"
#include "kvbacking/session.h"

namespace kvbacking {

using Digest = std::array<std::uint8_t, 16>;

struct PreparedInputs {
  RetainPtr<id<MLFeatureProvider>> provider;
  MemoryRanges ranges;
  std::vector<std::pair<std::string, Digest>> digests;  // only when asked for
  std::int64_t byte_count = 0, buffers_created = 0;
};

// Everything wrong with names, shapes and dtypes, at once; empty when all is well.
std::vector<CheckFailure> check_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs);

// Throws Error(kContract) with every failure.
void require_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs);
// Copies inputs that were checked. `with_digests` hashes what was copied.
PreparedInputs prepare_inputs(Model::Impl& model, const std::vector<InputArray>& inputs, bool with_digests);

// "[place] what: output 'a': check: expected x, got y; ..." with the failures attached.
Error failures_error(ErrorCode code, const std::string& what, std::vector<CheckFailure> failures);
std::string join_numbers(const std::vector<std::int64_t>& numbers);  // "[4, 1536, 1280]"

}  // namespace kvbacking
