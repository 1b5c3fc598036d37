// Where a prediction consults the fault table: before it runs, for each output, and when results are handed over.
// Threads: that of the prediction. Ownership: slots own what they point to.
#pragma once

#include <vector>

#include "framework/predict.h"

namespace coremlsim {

// Latency, hang, crash, exception, error. False with the NSError.
bool misbehave_before(const Faults& faults, NSError** error);
// Sets `result` (and `accepted`) when a fault decides where the output goes; otherwise leaves them alone.
void choose_destination(OutputSlot& output, const std::vector<std::int64_t>& shape, const Faults& faults);
// Converts the engine's tensor into the result, or fails to, as the faults say.
void write_output(OutputSlot& output, const mil::TensorView& tensor, ModelRuntime& runtime, const Faults& faults);
void corrupt_output(OutputSlot& output, const Faults& faults);
// Wrong layouts, aliases, locks and late releases; then the provider that the client gets.
id<MLFeatureProvider> finish_outputs(std::vector<InputSlot>& inputs, std::vector<OutputSlot>& outputs,
                                     const Faults& faults);

}  // namespace coremlsim
