#import "coreml/verify.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "core/checks.h"
#include "core/sentinel.h"

namespace kvbacking {
namespace {

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

std::string at_index(std::int64_t flat, const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> index(shape.size());
  std::int64_t rest = flat;
  for (std::size_t i = shape.size(); i-- > 0;) {
    index[i] = shape[i] == 0 ? 0 : rest % shape[i];
    rest = shape[i] == 0 ? 0 : rest / shape[i];
  }
  return "element " + std::to_string(flat) + " " + join_numbers(index);
}

// One output's byte checks: what is judged, and where verdicts go.
class ByteJudge {
 public:
  ByteJudge(const SessionPlan& plan, std::size_t output, const BackingSet& set, std::int64_t live, OutputResult& result,
            std::vector<CheckFailure>& failures)
      : contract_(plan.contract),
        set_(set),
        output_(output),
        accepted_(result.evidence.accepted.value_or(false)),
        live_(live),
        result_(result),
        evidence_(result.evidence),
        failures_(failures) {}

  void run(const void* data, const Layout& layout, int threads, const std::optional<Reference>& reference) {
    ScanOptions options;
    options.live = live_;
    options.axis = contract_.axis;
    options.threads = threads;
    const bool sentinels = accepted_ && set_.has_sentinels(output_);
    if (sentinels) options.fill_pattern = sentinel_pattern(layout.dtype);
    if (reference) {
      options.reference = reference->data;
      options.reference_layout = &reference->layout;
      options.max_abs = contract_.max_abs;
      options.max_rel = contract_.max_rel;
    }
    const ScanResult scanned = scan(data, layout, options);
    result_.scan = scanned;
    evidence_.digest = check_enabled(Check::kDigest) ? scanned.digest_hex() : std::string();
    evidence_.checked.push_back("digest");
    judge_values(scanned, layout);
    if (contract_.tail == TailRule::kZero) judge_tail(scanned, layout);
    if (sentinels) judge_complete(scanned, data, layout);
    if (scanned.parity) judge_parity(*scanned.parity, layout);
    judge_surroundings(data, layout);
  }

 private:
  // Records one verdict; a check that is switched off is recorded as passed and fails nothing.
  std::optional<bool> verdict(Check check, bool passed, const std::string& expected, const std::string& actual) {
    evidence_.checked.push_back(check_name(check));
    if (passed || !check_enabled(check)) return true;
    failures_.push_back({evidence_.name, check_name(check), expected, actual});
    return false;
  }

  void judge_values(const ScanResult& scanned, const Layout& layout) {
    const bool whole = contract_.tail == TailRule::kZero;
    const std::int64_t nans = whole ? scanned.nan_count : scanned.live_nan_count;
    const std::int64_t infinities = whole ? scanned.inf_count : scanned.live_inf_count;
    const std::int64_t first = scanned.first_nan_index >= 0 ? scanned.first_nan_index : scanned.first_inf_index;
    const bool finite = nans == 0 && infinities == 0;
    evidence_.finite = verdict(Check::kFinite, finite, whole ? "finite values" : "finite values in the live range",
                               finite ? ""
                                      : std::to_string(nans) + " NaN and " + std::to_string(infinities) +
                                            " infinite, the first at " + at_index(first, layout.shape));
    if (live_ > 0) {
      const bool non_zero = !scanned.live_all_zero;
      evidence_.non_zero =
          contract_.allow_all_zero
              ? non_zero
              : *verdict(Check::kNonZero, non_zero, "a value other than zero in the live range", "zeros only");
    }
    if (!std::isnan(scanned.min)) evidence_.min = scanned.min;
    if (!std::isnan(scanned.max)) evidence_.max = scanned.max;
  }

  void judge_tail(const ScanResult& scanned, const Layout& layout) {
    const bool clean = scanned.tail_dirty_count == 0;
    evidence_.tail_zero = verdict(Check::kTailZero, clean,
                                  "every byte of the tail (index " + std::to_string(live_) + " and up of axis " +
                                      std::to_string(contract_.axis) + ") zero",
                                  clean ? ""
                                        : std::to_string(scanned.tail_dirty_count) +
                                              " elements with bytes that are not zero, the first at " +
                                              at_index(scanned.first_tail_dirty_index, layout.shape));
  }

  void judge_complete(const ScanResult& scanned, const void* data, const Layout& layout) {
    const std::int64_t length = layout.shape[static_cast<std::size_t>(contract_.axis)];
    const std::int64_t judged = contract_.tail == TailRule::kZero ? length : live_;
    std::optional<std::int64_t> row;
    if (scanned.residue_count > 0) row = first_unwritten_row(data, layout, judged, contract_.axis);
    evidence_.complete = verdict(Check::kComplete, !row, "every row written",
                                 row ? "row " + std::to_string(*row) + " still holds what was there before" : "");
  }

  void judge_parity(const ParityResult& parity, const Layout& layout) {
    const bool within = parity.over_tolerance_count == 0;
    verdict(Check::kParity, within,
            "every live element within " + number(contract_.max_abs) + " + " + number(contract_.max_rel) +
                " x |control| of the control",
            within ? ""
                   : std::to_string(parity.over_tolerance_count) + " elements over, the first at " +
                         at_index(parity.first_over_index, layout.shape) + ", the largest difference " +
                         number(parity.max_abs_error));
  }

  // Canaries are checked even when the proposal was ignored: somebody had its address.
  void judge_surroundings(const void* data, const Layout& layout) {
    if (!evidence_.proposed) return;
    const Backing& backing = set_.backings()[output_];
    if (backing.allocation) {
      const auto damage = backing.allocation->check_canaries();
      evidence_.canaries_intact =
          verdict(Check::kCanaries, !damage, "the bytes around the payload untouched",
                  damage ? "byte " + std::to_string(damage->offset) + " from the payload's first is " +
                               std::to_string(damage->actual) + " and was " + std::to_string(damage->expected)
                         : "");
    }
    if (accepted_ && backing.surface && set_.has_row_gaps(output_) && check_enabled(Check::kRowGaps)) {
      evidence_.row_gaps_touched = !row_gaps_hold(data, layout, backing.surface->bytes_per_row(), set_.gap_byte());
      evidence_.checked.push_back(check_name(Check::kRowGaps));
    }
  }

  const Contract& contract_;
  const BackingSet& set_;
  const std::size_t output_;
  const bool accepted_;
  const std::int64_t live_;
  OutputResult& result_;
  OutputEvidence& evidence_;
  std::vector<CheckFailure>& failures_;
};

const DigestBytes* find_digest(const std::vector<std::pair<std::string, DigestBytes>>& named, const std::string& name) {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  return found == named.end() ? nullptr : &found->second;
}

}  // namespace

void scan_output(const SessionPlan& plan, std::size_t output, const BackingSet& set, std::int64_t live,
                 const std::optional<Reference>& reference, OutputResult& result, std::vector<CheckFailure>& failures) {
  std::unique_ptr<PixelReadLock> lock;
  const void* data = result.data;
  if (result.surface) {
    lock = std::make_unique<PixelReadLock>(CfPtr<CVPixelBufferRef>::retain(result.surface->pixel_buffer()));
    data = lock->data();
  }
  ByteJudge(plan, output, set, live, result, failures).run(data, result.layout, plan.options.scan_threads, reference);
}

void Freshness::check(const SessionPlan& plan, const PreparedInputs& inputs, std::vector<OutputResult>& results,
                      std::vector<CheckFailure>& failures) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (outputs_.empty()) return;
  bool changed = false;
  for (const std::string& name : plan.contract.sensitive_to) {
    const DigestBytes* before = find_digest(inputs_, name);
    const DigestBytes* now = find_digest(inputs.digests, name);
    if ((before == nullptr) != (now == nullptr) || (before != nullptr && *before != *now)) changed = true;
  }
  if (!changed) return;
  for (OutputResult& result : results) {
    const DigestBytes* before = find_digest(outputs_, result.evidence.name);
    if (!result.scan || before == nullptr) continue;
    result.evidence.checked.push_back(check_name(Check::kFresh));
    const bool fresh = result.scan->digest != *before || !check_enabled(Check::kFresh);
    result.evidence.fresh = fresh;
    if (fresh) continue;
    failures.push_back({result.evidence.name, check_name(Check::kFresh),
                        "an output that differs from the previous one, as its inputs do",
                        "the previous prediction's bytes"});
  }
}

void Freshness::remember(const PreparedInputs& inputs, const std::vector<OutputResult>& results) {
  const std::lock_guard<std::mutex> lock(mutex_);
  inputs_ = inputs.digests;
  outputs_.clear();
  for (const OutputResult& result : results) {
    if (result.scan) outputs_.emplace_back(result.evidence.name, result.scan->digest);
  }
}

}  // namespace kvbacking
