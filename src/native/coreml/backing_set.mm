#import "coreml/backing_set.h"

#include <algorithm>

#include "core/checks.h"
#include "core/sentinel.h"
#import "coreml/fork.h"
#import "coreml/inputs.h"
#import "coreml/owned_surface_impl.h"

namespace kvbacking {
namespace {

SurfaceSpec surface_spec(const OutputPlan& output) { return {output.dense->dtype, output.dense->shape}; }

Backing raw_backing(const OutputPlan& output) {
  Backing backing;
  backing.layout = *output.dense;
  backing.geometry = ArrayGeometry(backing.layout);
  backing.allocation = Allocation::create(std::max<std::size_t>(backing.layout.byte_count(), 1));
  backing.data = backing.allocation->payload();
  backing.owner = backing.allocation;
  return backing;
}

Backing surface_backing(std::shared_ptr<Surface> surface) {
  Backing backing;
  backing.layout = surface->layout();
  backing.surface = std::move(surface);
  return backing;
}

Backing external_backing(const OutputPlan& output, const std::vector<ExternalStorage>& set) {
  const auto storage =
      std::find_if(set.begin(), set.end(), [&](const ExternalStorage& s) { return s.output == output.name; });
  if (storage->surface) return surface_backing(storage->surface->impl().surface);
  Backing backing;
  backing.layout = storage->layout;
  backing.geometry = ArrayGeometry(backing.layout);
  backing.data = static_cast<std::byte*>(storage->data);
  backing.owner = storage->owner;
  return backing;
}

void fill_memory(void* data, const Layout& layout, const Preparation& preparation) {
  if (preparation.fill_byte) fill_elements(data, layout, *preparation.fill_byte);
  if (preparation.sentinels && has_sentinel(layout.dtype)) write_row_sentinels(data, layout);
}

}  // namespace

MemoryRange Backing::range() const {
  if (surface) return surface->range({});
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  return {{}, begin, begin + layout.span_byte_count(), 0};
}

PoolTable::PoolTable(const SessionPlan& plan) {
  std::map<std::pair<DType, std::vector<std::int64_t>>, std::size_t> alike;
  for (std::size_t i = 0; i < plan.backed_count; ++i) {
    const SurfaceSpec spec = surface_spec(plan.outputs[i]);
    ++alike[{spec.dtype, spec.shape}];
  }
  std::map<std::pair<DType, std::vector<std::int64_t>>, std::shared_ptr<SurfacePool>> made;
  for (std::size_t i = 0; i < plan.backed_count; ++i) {
    const SurfaceSpec spec = surface_spec(plan.outputs[i]);
    auto& pool = made[{spec.dtype, spec.shape}];
    if (!pool) pool = std::make_shared<SurfacePool>(spec, plan.options.depth * alike[{spec.dtype, spec.shape}]);
    pools_.push_back(pool);
  }
}

BackingSet::BackingSet(std::shared_ptr<const SessionPlan> plan)
    : plan_(std::move(plan)),
      copies_(plan_->outputs.size()),
      sentinels_(plan_->outputs.size(), false),
      gaps_(plan_->outputs.size(), false) {}

BackingSet::~BackingSet() {
  if (is_forked_child()) {  // the arrays' threads and locks are the parent's
    for (Backing& backing : backings_) {
      static_cast<void>(backing.array.leak());
      static_cast<void>(new std::shared_ptr<Surface>(std::move(backing.surface)));
    }
    static_cast<void>(options_.leak());
    return;
  }
  @autoreleasepool {
    options_ = {};
    backings_.clear();
  }
}

std::shared_ptr<BackingSet> BackingSet::create_control(std::shared_ptr<const SessionPlan> plan) {
  std::shared_ptr<BackingSet> set(new BackingSet(std::move(plan)));
  for (std::size_t i = 0; i < set->plan_->outputs.size(); ++i) {
    if (const auto& dense = set->plan_->outputs[i].dense) set->copy_target(i, *dense);
  }
  return set;
}

std::shared_ptr<BackingSet> BackingSet::create(std::shared_ptr<const SessionPlan> plan, std::size_t slot,
                                               const PoolTable* pools) {
  std::shared_ptr<BackingSet> set(new BackingSet(std::move(plan)));
  const SessionPlan& p = *set->plan_;
  for (std::size_t i = 0; i < p.backed_count; ++i) {
    const OutputPlan& output = p.outputs[i];
    switch (p.options.mechanism) {
      case Mechanism::kExternal:
        set->backings_.push_back(external_backing(output, p.options.external[slot]));
        break;
      case Mechanism::kSurface:
        set->backings_.push_back(surface_backing(Surface::create(surface_spec(output))));
        break;
      case Mechanism::kPool:
        set->backings_.push_back(surface_backing(pools->pool_of(i).create()));
        break;
      default:
        set->backings_.push_back(raw_backing(output));
    }
  }
  return set;
}

bool BackingSet::is_external_surface(const Backing& backing) const noexcept {
  return backing.surface && plan_->options.mechanism == Mechanism::kExternal;
}

std::vector<SurfaceUse> BackingSet::use_surfaces() const {
  std::vector<SurfaceUse> uses;
  for (std::size_t i = 0; i < backings_.size(); ++i) {
    if (!is_external_surface(backings_[i])) continue;
    uses.emplace_back(backings_[i].surface, SurfaceRole::kOutput,
                      "[session.predict] the surface of output '" + plan_->outputs[i].name + "'");
  }
  return uses;
}

// One report has it that a surface stays locked once it was an input, and that the framework then ignores or refuses
// it; others lock it only by reading. Nobody is left to guess.
void BackingSet::refuse_input_surfaces() const {
  if (plan_->options.allow_input_surfaces || !check_enabled(Check::kInputSurface)) return;
  std::vector<CheckFailure> failures;
  for (std::size_t i = 0; i < backings_.size(); ++i) {
    if (!is_external_surface(backings_[i])) continue;
    const std::string input = backings_[i].surface->input_name();
    if (input.empty()) continue;
    failures.push_back({plan_->outputs[i].name, check_name(Check::kInputSurface), "a surface that was never an input",
                        "surface " + std::to_string(backings_[i].surface->id()) + ", which was input '" + input +
                            "' of an earlier prediction and may still be locked; use another one, or allow it"});
  }
  if (failures.empty()) return;
  throw failures_error(ErrorCode::kContract, "[session] a surface is not proposed as a backing", std::move(failures));
}

// A surface that may have been locked, or whose prediction failed, is not proposed again, unless it is the caller's.
void BackingSet::renew() {
  for (std::size_t i = 0; i < backings_.size(); ++i) {
    Backing& backing = backings_[i];
    backing.array = {};
    if (backing.surface && !is_external_surface(backing)) {
      backing = surface_backing(Surface::create(surface_spec(plan_->outputs[i])));
    }
  }
  renew_ = false;
}

void BackingSet::fill(std::size_t output, const Preparation& preparation) {
  Backing& backing = backings_[output];
  sentinels_[output] = gaps_[output] = false;
  const SessionOptions& options = plan_->options;
  const bool sentinels = preparation.sentinels && has_sentinel(backing.layout.dtype);
  if (!backing.surface) {
    fill_memory(backing.data, backing.layout, preparation);
    if (backing.allocation && preparation.sentinels) {
      backing.allocation->arm_canaries(preparation.seed + output);
    }
    sentinels_[output] = sentinels;
    return;
  }
  const bool kept = options.mechanism == Mechanism::kSurface && options.reuse == Reuse::kSame;
  if (kept || backing.array) return;  // never under a living array
  if (!preparation.sentinels && !preparation.fill_byte) return;
  const SurfaceLock lock(*backing.surface, true);
  fill_memory(lock.data(), backing.layout, preparation);
  if (preparation.sentinels) {
    fill_row_gaps(lock.data(), backing.layout, backing.surface->bytes_per_row(), gap_byte_);
  }
  sentinels_[output] = sentinels;
  gaps_[output] = preparation.sentinels &&
                  backing.surface->bytes_per_row() >
                      static_cast<std::size_t>(backing.layout.row_length()) * element_size(backing.layout.dtype);
}

void BackingSet::prepare(const Preparation& preparation) {
  if (!proposes()) return;
  refuse_input_surfaces();
  if (renew_) renew();
  const SessionOptions& options = plan_->options;
  const bool rewrap = options.mechanism == Mechanism::kSurface && options.reuse == Reuse::kRewrap;
  for (Backing& backing : backings_) {
    if (!rewrap && !is_external_surface(backing)) continue;
    options_ = {};  // it holds the arrays too
    backing.array = {};
  }
  gap_byte_ = static_cast<std::uint8_t>(preparation.seed | 1);
  for (std::size_t i = 0; i < backings_.size(); ++i) fill(i, preparation);
  wrap_all();
}

void BackingSet::wrap_all() {
  const auto has_array = [](const Backing& backing) { return static_cast<bool>(backing.array); };
  if (options_ && std::all_of(backings_.begin(), backings_.end(), has_array)) return;
  std::vector<CheckFailure> failures;
  auto proposals = adopt([[NSMutableDictionary<NSString*, id> alloc] initWithCapacity:backings_.size()]);
  for (std::size_t i = 0; i < backings_.size(); ++i) {
    Backing& backing = backings_[i];
    if (!backing.array) {
      backing.array = backing.surface
                          ? wrap_pixel_buffer(backing.surface->pixel_buffer(), plan_->outputs[i].geometry.shape.get())
                          : wrap_memory(backing.data, backing.layout.dtype, backing.geometry, backing.owner);
      MLFeatureValue* const value = [MLFeatureValue featureValueWithMultiArray:backing.array.get()];
      backing.allowed = [plan_->outputs[i].description.get() isAllowedValue:value];
    }
    if (!backing.allowed && check_enabled(Check::kAllowed)) {
      failures.push_back({plan_->outputs[i].name, check_name(Check::kAllowed),
                          "a backing that the output description allows",
                          backing.layout.describe() + " for which isAllowedValue: says no"});
    }
    const auto strides = backing.surface ? integers([backing.array.get() strides]) : backing.layout.element_strides;
    if (!same_strides(backing.layout.shape, strides, backing.layout.element_strides)) {
      failures.push_back({plan_->outputs[i].name, check_name(Check::kStrides),
                          join_numbers(backing.layout.element_strides), join_numbers(strides)});
    }
    [proposals.get() setObject:backing.array.get() forKey:plan_->keys[i].get()];
  }
  if (!failures.empty()) {
    options_ = {};  // ask again next time, about new arrays
    for (Backing& backing : backings_) backing.array = {};
    throw failures_error(ErrorCode::kContract, "[session] a backing is not admissible", std::move(failures));
  }
  options_ = adopt([[MLPredictionOptions alloc] init]);
  [options_.get() setOutputBackings:proposals.get()];
}

CopyTarget& BackingSet::copy_target(std::size_t output, const Layout& layout) {
  auto& target = copies_[output];
  if (!target || target->layout != layout) {
    target.reset();
    target = CopyTarget{layout, Allocation::create(std::max<std::size_t>(layout.byte_count(), 1))};
  }
  return *target;
}

}  // namespace kvbacking
