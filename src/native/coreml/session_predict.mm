// One prediction of a session: take a set, propose, predict, inspect, copy what was ignored, verify, hand out.
#include <optional>
#include <utility>

#include "core/checks.h"
#import "coreml/inspect.h"
#import "coreml/model_impl.h"
#import "coreml/predict.h"
#import "coreml/prediction_impl.h"
#import "coreml/session_impl.h"
#import "coreml/state_impl.h"
#import "coreml/verify.h"
#include "kvbacking/copy.h"
#include "kvbacking/signpost.h"

namespace kvbacking {
namespace {

constexpr std::uint64_t kSeedStep = 0x9e37'79b9'7f4a'7c15;  // odd: successive predictions get unrelated patterns

std::int64_t effective_live(const SessionPlan& plan, const PredictOptions& options) {
  if (!options.live) return plan.contract.live;
  for (const ContractOutput& output : plan.contract.outputs) {
    const std::int64_t length = output.shape[static_cast<std::size_t>(plan.contract.axis)];
    if (*options.live < 0 || *options.live > length) {
      throw Error(ErrorCode::kInvalidArgument, "[session.predict] live must be 0 to " + std::to_string(length) +
                                                   " for output '" + output.name + "', got " +
                                                   std::to_string(*options.live));
    }
  }
  return *options.live;
}

void check_state(const SessionPlan& plan, const PredictOptions& options) {
  if (!options.state) return;
  if (options.state->model() != plan.model) {
    throw Error(ErrorCode::kInvalidArgument, "[session.predict] the state belongs to another model");
  }
  if (plan.options.verify == Verify::kFull) {
    throw Error(ErrorCode::kInvalidArgument,
                "[session.predict] verify 'full' runs a second prediction, which with state is another answer; "
                "use verify 'scan'");
  }
}

// An array or surface that a failed or ignored prediction touched is not proposed again.
struct RenewUnlessDone {
  BackingSet& set;
  bool done = false;
  ~RenewUnlessDone() {
    if (!done) set.renew_next_time();
  }
};

struct CountFailure {
  Session::Impl& session;
  bool done = false;
  ~CountFailure() {
    if (done) return;
    const std::lock_guard<std::mutex> lock(session.mutex);
    ++session.stats.failed;
  }
};

class SessionCall {
 public:
  SessionCall(Session::Impl& session, const PredictOptions& options)
      : session_(session),
        plan_(*session.plan),
        model_(plan_.model->impl()),
        options_(options),
        live_(effective_live(plan_, options)),
        scans_(plan_.options.verify == Verify::kScan || plan_.options.verify == Verify::kFull) {}

  std::unique_ptr<Prediction::Impl> run(const std::vector<InputArray>& inputs) {
    require_inputs(model_, inputs);
    std::optional<StateUse> state_use;
    if (options_.state) state_use.emplace(options_.state->impl());
    taken_ = session_.take_set();
    const std::uint64_t sequence = session_.sequence.fetch_add(1, std::memory_order_relaxed);
    refuse_lent_backings(inputs);
    const auto surfaces = taken_.set->use_surfaces();
    const auto claim = claim_external_memory();
    {
      const StageSignpost signpost(Stage::kPrepare);
      taken_.set->prepare({scans_, options_.fill_byte, sequence * kSeedStep});
    }
    inputs_ = prepare_inputs(model_, inputs, scans_);
    RenewUnlessDone renew{*taken_.set};
    predict();
    state_use.reset();
    judge_inputs();
    judge();
    renew.done = !was_ignored_;
    return finish();
  }

 private:
  void predict() {
    MLPredictionOptions* const options = taken_.set->proposes() ? taken_.set->options() : model_.plain_options.get();
    CountFailure count{session_};
    const RawPrediction raw =
        run_prediction(model_, inputs_.provider.get(), options, options_.state ? &options_.state->impl() : nullptr);
    count.done = true;
    predict_ns_ = raw.elapsed_ns;
    arrays_ = collect_outputs(raw.features.get(), plan_.keys, failures_);
  }

  // Before anything is written into the set.
  void refuse_lent_backings(const std::vector<InputArray>& inputs) {
    for (const MemoryRange& lent : lent_ranges(inputs)) {
      for (std::size_t i = 0; i < taken_.set->backings().size(); ++i) {
        if (!taken_.set->backings()[i].range().overlaps(lent)) continue;
        failures_.push_back({lent.name, check_name(Check::kDistinct), "memory that this prediction does not write",
                             "memory shared with the backing of output '" + plan_.outputs[i].name + "'"});
      }
    }
    if (failures_.empty()) return;
    throw failures_error(ErrorCode::kContract, "[session.predict] a lent input cannot be used", std::move(failures_));
  }

  // Sets of this session are leased; other sessions may have been given the same memory.
  std::shared_ptr<void> claim_external_memory() const {
    if (plan_.options.mechanism != Mechanism::kExternal) return nullptr;
    MemoryRanges ranges;
    for (std::size_t i = 0; i < taken_.set->backings().size(); ++i) {
      ranges.push_back(taken_.set->backings()[i].range());
      ranges.back().name = plan_.outputs[i].name;
    }
    return claim_memory(std::move(ranges));
  }

  // What is wrong with a lent input is the caller's doing: it says nothing against the backings.
  void judge_inputs() {
    if (inputs_.lent.empty()) return;
    auto failures = inspect_lent_inputs(inputs_);
    inputs_.uses.clear();
    if (failures.empty()) return;
    const CountFailure count{session_};
    throw failures_error(ErrorCode::kIntegrity, "[session.predict] a lent input changed while the framework read it",
                         std::move(failures));
  }

  void judge() {
    const std::int64_t start = monotonic_ns();
    inspect();
    const std::int64_t copy_start = monotonic_ns();
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      take_output(plan_, i, *taken_.set, results_[i], scans_, failures_);
    }
    copy_ns_ = monotonic_ns() - copy_start;
    throw_failures();
    if (scans_) {
      const StageSignpost signpost(Stage::kVerify);
      scan_all();
    }
    throw_failures();
    verify_ns_ = monotonic_ns() - start - copy_ns_;
  }

  void inspect() {
    const StageSignpost signpost(Stage::kVerify);
    require_arrays();
    results_.reserve(plan_.outputs.size());
    for (std::size_t i = 0; i < plan_.outputs.size(); ++i) {
      results_.push_back(inspect_output(plan_, i, *taken_.set, std::move(arrays_[i]), failures_));
    }
    if (plan_.options.verify != Verify::kOff) check_distinct(results_, inputs_.ranges, failures_);
    throw_failures();
    refuse_ignored();
  }

  // Without an array there is nothing to inspect, whatever is switched off.
  void require_arrays() {
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      if (arrays_[i] || !failures_.empty()) continue;
      failures_.push_back({plan_.outputs[i].name, "prediction", "a multi-array", "none"});
    }
    throw_failures();
  }

  void throw_failures() {
    if (failures_.empty()) return;
    session_.distrust(taken_, failures_);
    const CountFailure count{session_};
    throw failures_error(ErrorCode::kIntegrity, "[session.predict] the outputs cannot be trusted",
                         std::move(failures_));
  }

  void refuse_ignored() {
    std::vector<std::string> ignored;
    std::string text;
    std::int64_t proposed = 0;
    for (const OutputResult& result : results_) {
      if (!result.evidence.accepted) continue;
      ++proposed;
      if (*result.evidence.accepted) continue;
      ignored.push_back(result.evidence.name);
      text += (text.empty() ? "'" : ", '") + result.evidence.name + "'" +
              (*result.evidence.same_object    ? " (the proposed array, but other storage)"
               : *result.evidence.same_storage ? " (another array over the proposed storage)"
                                               : " (another array)");
    }
    {
      const std::lock_guard<std::mutex> lock(session_.mutex);
      session_.stats.proposed += proposed;
      session_.stats.ignored += static_cast<std::int64_t>(ignored.size());
      session_.stats.accepted += proposed - static_cast<std::int64_t>(ignored.size());
      if (!ignored.empty() && plan_.options.on_ignored == OnIgnored::kRaise) ++session_.stats.failed;
    }
    if (ignored.empty()) return;
    was_ignored_ = true;
    if (plan_.options.on_ignored == OnIgnored::kCopy) return;
    throw Error(ErrorCode::kBackingIgnored,
                "[session.predict] the framework did not use the backing of " + text +
                    "; expected the proposed array and its storage back; use on_ignored 'copy' or the control",
                {{"outputs", ignored}});
  }

  void scan_all() {
    std::vector<std::optional<Reference>> references(plan_.backed_count);
    std::vector<std::shared_ptr<Allocation>> kept;
    if (plan_.options.verify == Verify::kFull && taken_.set->proposes()) {
      run_control(references, kept);
      throw_failures();
    }
    for (std::size_t i = 0; i < plan_.backed_count; ++i) {
      scan_output(plan_, i, *taken_.set, live_, references[i], results_[i], failures_);
    }
    throw_failures();
    session_.freshness.check(plan_, inputs_, results_, failures_);
    throw_failures();
    session_.freshness.remember(inputs_, results_);
  }

  // Verify full: the same inputs once more with nothing proposed, gathered into memory of ours to compare with.
  void run_control(std::vector<std::optional<Reference>>& references, std::vector<std::shared_ptr<Allocation>>& kept) {
    const RawPrediction raw = run_prediction(model_, inputs_.provider.get(), model_.plain_options.get(), nullptr);
    const auto arrays = collect_outputs(raw.features.get(), plan_.keys, failures_);
    for (std::size_t i = 0; i < plan_.backed_count && failures_.empty(); ++i) {
      const Layout& dense = *plan_.outputs[i].dense;
      const auto layout = arrays[i] ? describe(arrays[i].get()).layout() : std::nullopt;
      if (!layout || layout->shape != dense.shape || layout->dtype != dense.dtype) {
        failures_.push_back({plan_.outputs[i].name, check_name(Check::kParity),
                             "a control output of " + dense.describe(),
                             layout ? layout->describe() : "an array that cannot be read"});
        return;
      }
      kept.push_back(Allocation::create(std::max<std::size_t>(dense.byte_count(), 1)));
      read_bytes(arrays[i].get(), [&](const void* bytes, std::size_t byte_count) {
        if (layout->span_byte_count() > byte_count) {
          throw Error(ErrorCode::kPrediction, "[session.predict] the control's bytes end too early");
        }
        copy_elements(bytes, *layout, kept.back()->payload(), dense);
      });
      references[i] = Reference{kept.back()->payload(), dense};
    }
  }

  std::unique_ptr<Prediction::Impl> finish() {
    auto prediction = std::make_unique<Prediction::Impl>();
    prediction->path = !taken_.set->proposes() ? Path::kFramework : was_ignored_ ? Path::kCopy : Path::kBacking;
    prediction->live = live_;
    prediction->predict_ns = predict_ns_;
    prediction->verify_ns = verify_ns_;
    prediction->copy_ns = copy_ns_;
    MemoryRanges ranges;
    std::int64_t bytes_copied = 0, copied = 0;
    for (OutputResult& result : results_) {
      bytes_copied += static_cast<std::int64_t>(result.evidence.bytes_copied);
      copied += result.evidence.bytes_copied > 0 ? 1 : 0;
      ranges.push_back(shown_range(result));
      prediction->outputs.push_back({result.evidence.name, result.data, std::move(result.layout),
                                     std::move(result.owner), std::move(result.surface)});
      prediction->evidence.push_back(std::move(result.evidence));
    }
    prediction->inputs = std::move(inputs_.evidence);
    taken_.lease.attach(register_viewed_memory(std::move(ranges)));
    prediction->lease = std::move(taken_.lease);
    const std::lock_guard<std::mutex> lock(session_.mutex);
    SessionStats& stats = session_.stats;
    ++stats.predictions;
    stats.copied += copied;
    stats.bytes_copied += bytes_copied;
    stats.input_bytes_copied += inputs_.byte_count;
    stats.input_buffers_created += inputs_.buffers_created;
    return prediction;
  }

  static MemoryRange shown_range(const OutputResult& result) {
    if (result.surface) return result.surface->range(result.evidence.name);
    const auto begin = reinterpret_cast<std::uintptr_t>(result.data);
    return {result.evidence.name, begin, begin + result.layout.span_byte_count(), 0};
  }

  Session::Impl& session_;
  const SessionPlan& plan_;
  Model::Impl& model_;
  const PredictOptions& options_;
  const std::int64_t live_;
  const bool scans_;
  TakenSet taken_;
  PreparedInputs inputs_;
  std::vector<RetainPtr<MLMultiArray*>> arrays_;
  std::vector<OutputResult> results_;
  std::vector<CheckFailure> failures_;
  bool was_ignored_ = false;
  std::int64_t predict_ns_ = 0, verify_ns_ = 0, copy_ns_ = 0;
};

}  // namespace

std::unique_ptr<Prediction::Impl> run_session_prediction(Session::Impl& session, const std::vector<InputArray>& inputs,
                                                         const PredictOptions& options) {
  check_state(*session.plan, options);
  return SessionCall(session, options).run(inputs);
}

}  // namespace kvbacking
