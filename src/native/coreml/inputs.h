// Caller arrays as a feature provider over native buffers of ours.
// Threads: any; call inside guarded(). Ownership: the provider's arrays hold their buffers; caller memory is only read
// during the call.
#pragma once

#import <CoreML/CoreML.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/digest.h"
#include "coreml/memory_range.h"
#include "coreml/model_impl.h"
#include "coreml/retain_ptr.h"
#include "coreml/surface.h"
#include "kvbacking/error.h"
#include "kvbacking/session.h"

namespace kvbacking {

// An input that the framework reads where it lies.
struct LentInput {
  std::size_t index;  // in `evidence`, and in `digests` where there are any
  RetainPtr<MLMultiArray*> array;
  const void* data = nullptr;
  Layout layout;
  std::shared_ptr<Surface> surface;
};

struct PreparedInputs {
  RetainPtr<id<MLFeatureProvider>> provider;
  MemoryRanges ranges;
  std::vector<std::pair<std::string, DigestBytes>> digests;  // only when asked for
  std::vector<InputEvidence> evidence;
  std::vector<LentInput> lent;
  std::vector<SurfaceUse> uses;                      // of lent surfaces, until the prediction is over
  std::int64_t byte_count = 0, buffers_created = 0;  // copied
};

const FeaturePlan* find_input_plan(const Model::Impl& model, const std::string& name);  // null: no such input

// Everything wrong with names, shapes and dtypes, at once; empty when all is well.
std::vector<CheckFailure> check_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs);

// Throws Error(kContract) with every failure.
void require_inputs(const Model::Impl& model, const std::vector<InputArray>& inputs);
// Copies inputs that were checked, or wraps what is lent. `with_digests` hashes them.
PreparedInputs prepare_inputs(Model::Impl& model, const std::vector<InputArray>& inputs, bool with_digests);
// After the prediction: where the lent inputs' arrays lie, and whether their bytes are what they were when there are
// digests to compare with. What was wrong.
std::vector<CheckFailure> inspect_lent_inputs(PreparedInputs& inputs);
// Where lent inputs lie, for a comparison with what a prediction will write.
MemoryRanges lent_ranges(const std::vector<InputArray>& inputs);

// "[place] what: output 'a': check: expected x, got y; ..." with the failures attached.
Error failures_error(ErrorCode code, const std::string& what, std::vector<CheckFailure> failures);
std::string join_numbers(const std::vector<std::int64_t>& numbers);  // "[4, 1536, 1280]"

}  // namespace kvbacking
