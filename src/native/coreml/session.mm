#import "kvbacking/session.h"

#include <utility>

#include "core/checks.h"
#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/model_impl.h"
#import "coreml/prediction_impl.h"
#import "coreml/session_impl.h"
#include "kvbacking/host.h"

namespace kvbacking {
namespace {

void count_new_sets(SessionStats& stats, std::size_t count) { stats.sets_created += static_cast<std::int64_t>(count); }

Error no_free_set(const SetGroup& group) {
  const auto depth = static_cast<std::int64_t>(group.slots.depth());
  const auto busy = static_cast<std::int64_t>(group.slots.busy_count());
  const auto quarantined = static_cast<std::int64_t>(group.slots.quarantined_count());
  return Error(
      ErrorCode::kBackingInUse,
      "[session.predict] no free set: depth is " + std::to_string(depth) + ", " + std::to_string(busy) +
          " in use by predictions or views, " + std::to_string(quarantined) +
          " quarantined; drop views and call release() on predictions you are done with, or use a larger depth",
      {{"depth", depth}, {"busy", busy}, {"quarantined", quarantined}});
}

}  // namespace

const char* mechanism_name(Mechanism mechanism) noexcept {
  switch (mechanism) {
    case Mechanism::kRaw:
      return "raw";
    case Mechanism::kSurface:
      return "surface";
    case Mechanism::kPool:
      return "pool";
    case Mechanism::kExternal:
      return "external";
    case Mechanism::kFramework:
      break;
  }
  return "framework";
}

const char* path_name(Path path) noexcept {
  switch (path) {
    case Path::kBacking:
      return "backing";
    case Path::kCopy:
      return "copy";
    case Path::kFramework:
      break;
  }
  return "framework";
}

bool Session::Impl::is_fresh_per_prediction() const noexcept {
  const SessionOptions& options = plan->options;
  return options.mechanism == Mechanism::kPool ||
         (options.mechanism == Mechanism::kSurface && options.reuse == Reuse::kNew);
}

void Session::Impl::create_sets() {
  const SessionOptions& options = plan->options;
  if (options.mechanism == Mechanism::kFramework) {
    control = std::make_shared<SetGroup>(options.depth);
    for (auto& set : control->sets) set = BackingSet::create_control(plan);
    count_new_sets(stats, options.depth);
    return;
  }
  if (options.mechanism == Mechanism::kPool) pools = std::make_shared<PoolTable>(*plan);
  proposing = std::make_shared<SetGroup>(options.depth);
  if (is_fresh_per_prediction()) {  // one for the sake of what can be refused; the sets themselves come later
    BackingSet::create(plan, 0, pools.get())->prepare({});
    return;
  }
  for (std::size_t slot = 0; slot < options.depth; ++slot) {
    proposing->sets[slot] = BackingSet::create(plan, slot, pools.get());
    proposing->sets[slot]->prepare({});
  }
  count_new_sets(stats, options.depth);
}

TakenSet Session::Impl::take_set() {
  TakenSet taken;
  const std::lock_guard<std::mutex> lock(mutex);
  if (closed) throw Error(ErrorCode::kInvalidArgument, "[session.predict] the session is closed");
  if (!proposing && !control) {  // degraded: the control needs sets of its own
    control = std::make_shared<SetGroup>(plan->options.depth);
    for (auto& set : control->sets) set = BackingSet::create_control(plan);
    count_new_sets(stats, plan->options.depth);
  }
  taken.group = proposing ? proposing : control;
  if (auto lease = taken.group->slots.try_acquire()) {
    taken.lease = std::move(*lease);
    taken.slot = taken.lease.slot();
  } else if (check_enabled(Check::kBusy)) {
    ++stats.backing_in_use;
    throw no_free_set(*taken.group);
  }
  if (proposing && is_fresh_per_prediction()) {
    try {
      taken.set = BackingSet::create(plan, taken.slot, pools.get());
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kBackingInUse) ++stats.backing_in_use;
      throw;
    }
    count_new_sets(stats, 1);
  } else {
    taken.set = taken.group->sets[taken.slot];
  }
  taken.lease.attach(taken.set);
  return taken;
}

void Session::Impl::distrust(const TakenSet& taken, const std::vector<CheckFailure>& failures) {
  if (!check_enabled(Check::kQuarantine) || !taken.set->proposes()) return;
  taken.group->slots.quarantine(taken.slot);
  const std::lock_guard<std::mutex> lock(mutex);
  ++stats.quarantined;
  if (proposing != taken.group) return;  // another thread was first
  const CheckFailure& first = failures.front();
  stats.degraded_reason = "output '" + first.output + "' failed " + first.check + ": expected " + first.expected +
                          ", got " + first.actual + "; the session now runs the control";
  proposing = nullptr;
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Session::~Session() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  close();
  @autoreleasepool {
    impl_.reset();
  }
}

std::shared_ptr<Session> Session::create(std::shared_ptr<Model> model, Contract contract, SessionOptions options) {
  require_same_process();
  auto impl = guarded("session.create", ErrorCode::kModel, [&] {
    auto made = std::make_unique<Impl>();
    made->plan = make_session_plan(std::move(model), std::move(contract), std::move(options));
    made->create_sets();
    return made;
  });
  return std::make_shared<Session>(std::move(impl));
}

std::unique_ptr<Prediction> Session::predict(const std::vector<InputArray>& inputs, const PredictOptions& options) {
  require_same_process();
  auto prediction = guarded("session.predict", ErrorCode::kPrediction,
                            [&] { return run_session_prediction(*impl_, inputs, options); });
  return std::make_unique<Prediction>(std::move(prediction));
}

SessionStats Session::stats() const {
  require_same_process();
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->stats;
}

// A thread that fork() left behind may have held the mutex: a child must not wait for it.
void Session::close() noexcept {
  if (is_forked_child()) return;
  std::shared_ptr<SetGroup> proposing, control;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    impl_->closed = true;
    proposing.swap(impl_->proposing);
    control.swap(impl_->control);
  }
  @autoreleasepool {
    proposing.reset();
    control.reset();
  }
}

bool Session::closed() const noexcept {
  if (is_forked_child()) return true;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->closed;
}

const Contract& Session::contract() const noexcept { return impl_->plan->contract; }
const SessionOptions& Session::options() const noexcept { return impl_->plan->options; }

}  // namespace kvbacking
