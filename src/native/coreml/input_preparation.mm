// Inputs on their way to the framework: copied into buffers of ours, lent where they lie, or passed as surfaces.
#import "coreml/inputs.h"

#include <cstdio>

#import "coreml/nserror.h"
#import "coreml/owned_surface_impl.h"
#include "kvbacking/allocation.h"
#include "kvbacking/copy.h"

namespace kvbacking {

std::optional<std::string> lending_refusal(const InputArray& input) {
  const Layout& layout = input.layout;
  if (!input.owner) return "nobody who keeps it alive: lent memory needs an owner";
  if (!layout.is_dense()) return layout.describe() + ": only contiguous memory is passed as it is";
  if (layout.element_count() == 0) return "an array without elements";
  const auto address = reinterpret_cast<std::uintptr_t>(input.data);
  const std::size_t alignment = Allocation::granularity();
  if (address % alignment == 0) return std::nullopt;
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return std::string("address ") + text + " is no multiple of " + std::to_string(alignment);
}

MemoryRanges lent_ranges(const std::vector<InputArray>& inputs) {
  MemoryRanges ranges;
  for (const InputArray& input : inputs) {
    if (input.surface) {
      ranges.push_back(input.surface->impl().surface->range(input.name));
    } else if (input.lending != Lending::kCopy && !lending_refusal(input)) {
      const auto address = reinterpret_cast<std::uintptr_t>(input.data);
      ranges.push_back({input.name, address, address + input.layout.span_byte_count(), 0});
    }
  }
  return ranges;
}

namespace {

// Rows are dense: of lent memory, which is dense as a whole, and of surfaces.
DigestBytes digest_rows(const void* data, const Layout& layout) {
  Digest digest;
  const std::size_t size = element_size(layout.dtype);
  const std::size_t row = static_cast<std::size_t>(layout.row_length()) * size;
  if (layout.is_dense()) {
    digest.update(data, layout.byte_count());
  } else {
    const std::size_t rank = layout.shape.size();
    const std::size_t step = static_cast<std::size_t>(layout.element_strides[rank - 2]) * size;
    const auto* bytes = static_cast<const std::byte*>(data);
    for (std::int64_t i = 0; i < layout.row_count(); ++i) {
      digest.update(bytes + static_cast<std::size_t>(i) * step, row);
    }
  }
  return digest.canonical();
}

DigestBytes digest_lent(const LentInput& lent) {
  if (!lent.surface) return digest_rows(lent.data, lent.layout);
  const SurfaceLock lock(*lent.surface, false);
  return digest_rows(lock.data(), lent.layout);
}

// One input on its way into a PreparedInputs.
class InputPreparation {
 public:
  InputPreparation(PreparedInputs& prepared, const FeaturePlan& plan, const InputArray& input, bool with_digests)
      : prepared_(prepared), plan_(plan), input_(input), with_digests_(with_digests) {
    evidence_.name = input.name;
  }

  RetainPtr<MLMultiArray*> run() {
    if (input_.surface) return pass_surface();
    evidence_.source_address = reinterpret_cast<std::uintptr_t>(input_.data);
    if (input_.lending == Lending::kCopy) return copy();
    auto refusal = lending_refusal(input_);
    if (!refusal) return lend();
    evidence_.reason = std::move(*refusal);
    return copy();
  }
  InputEvidence take_evidence() { return std::move(evidence_); }

 private:
  RetainPtr<MLMultiArray*> copy() {
    const bool is_usual =
        plan_.dense && plan_.dense->shape == input_.layout.shape && plan_.dense->dtype == input_.layout.dtype;
    const Layout dense = is_usual ? *plan_.dense : Layout::dense(input_.layout.dtype, input_.layout.shape);
    const std::size_t byte_count = dense.byte_count();
    bool created = false;
    std::shared_ptr<InputLoan> loan = plan_.pool->borrow(byte_count, &created);
    std::byte* const data = loan->buffer->memory->payload();
    copy_elements(input_.data, input_.layout, data, dense);
    evidence_.path = "copied";
    evidence_.bytes_copied = byte_count;
    evidence_.array_address = reinterpret_cast<std::uintptr_t>(data);
    prepared_.byte_count += static_cast<std::int64_t>(byte_count);
    prepared_.buffers_created += created ? 1 : 0;
    if (with_digests_) prepared_.digests.emplace_back(input_.name, digest_rows(data, dense));
    note_range(data, byte_count);
    return wrap_memory(data, dense.dtype, is_usual ? plan_.geometry : ArrayGeometry(dense), std::move(loan));
  }

  RetainPtr<MLMultiArray*> lend() {
    evidence_.path = "memory";
    note_range(input_.data, input_.layout.span_byte_count());
    LentInput lent{prepared_.evidence.size(), {}, input_.data, input_.layout, nullptr};
    note_digest(lent);
    // The framework's initialiser takes writable memory; an input is only read.
    lent.array =
        wrap_memory(const_cast<void*>(input_.data), input_.layout.dtype, ArrayGeometry(input_.layout), input_.owner);
    prepared_.lent.push_back(std::move(lent));
    return prepared_.lent.back().array;
  }

  RetainPtr<MLMultiArray*> pass_surface() {
    const auto& surface = input_.surface->impl().surface;
    evidence_.path = "surface";
    evidence_.surface_id = surface->id();
    prepared_.uses.emplace_back(surface, SurfaceRole::kInput,
                                "[session.predict] the surface of input '" + input_.name + "'");
    surface->note_input(input_.name);
    prepared_.ranges.push_back(surface->range(input_.name));
    LentInput lent{prepared_.evidence.size(), {}, nullptr, surface->layout(), surface};
    note_digest(lent);  // reads under a lock, hence before there is an array
    lent.array = wrap_pixel_buffer(surface->pixel_buffer(), number_array(surface->layout().shape).get());
    prepared_.lent.push_back(std::move(lent));
    return prepared_.lent.back().array;
  }

  void note_digest(const LentInput& lent) {
    if (with_digests_) prepared_.digests.emplace_back(input_.name, digest_lent(lent));
  }

  void note_range(const void* data, std::size_t byte_count) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    prepared_.ranges.push_back({input_.name, address, address + byte_count, 0});
  }

  PreparedInputs& prepared_;
  const FeaturePlan& plan_;
  const InputArray& input_;
  const bool with_digests_;
  InputEvidence evidence_;
};

}  // namespace

PreparedInputs prepare_inputs(Model::Impl& model, const std::vector<InputArray>& inputs, bool with_digests) {
  PreparedInputs prepared;
  prepared.evidence.reserve(inputs.size());
  auto features = adopt([[NSMutableDictionary<NSString*, MLFeatureValue*> alloc] initWithCapacity:inputs.size()]);
  for (const InputArray& input : inputs) {
    const FeaturePlan* plan = find_input_plan(model, input.name);
    if (plan == nullptr) continue;  // only with the input check switched off
    InputPreparation preparation(prepared, *plan, input, with_digests);
    const auto array = preparation.run();
    prepared.evidence.push_back(preparation.take_evidence());
    [features.get() setObject:[MLFeatureValue featureValueWithMultiArray:array.get()] forKey:plan->name.get()];
  }
  NSError* error = nil;
  auto provider = adopt([[MLDictionaryFeatureProvider alloc] initWithDictionary:features.get() error:&error]);
  if (!provider) throw nserror_error(ErrorCode::kPrediction, "predict.inputs", error);
  prepared.provider = retain(static_cast<id<MLFeatureProvider>>(provider.get()));
  return prepared;
}

std::vector<CheckFailure> inspect_lent_inputs(PreparedInputs& inputs) {
  std::vector<CheckFailure> failures;
  for (const LentInput& lent : inputs.lent) {
    InputEvidence& evidence = inputs.evidence[lent.index];
    if (lent.surface) {
      evidence.same_storage = [lent.array.get() pixelBuffer] == lent.surface->pixel_buffer();
    } else {
      read_bytes(lent.array.get(), [&](const void* bytes, std::size_t) {
        evidence.array_address = reinterpret_cast<std::uintptr_t>(bytes);
      });
      evidence.same_storage = evidence.array_address == evidence.source_address;
    }
    if (inputs.digests.empty()) continue;
    evidence.unchanged = digest_lent(lent) == inputs.digests[lent.index].second;
    if (*evidence.unchanged) continue;
    failures.push_back({evidence.name, "unchanged", "lent memory that nobody writes before the prediction returned",
                        "other bytes after the prediction than before it"});
  }
  return failures;
}

}  // namespace kvbacking
