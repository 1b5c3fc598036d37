#include "kvbacking/scan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/checked_math.h"
#include "core/digest.h"
#include "core/extent.h"
#include "core/parity.h"
#include "core/scan_exact.h"
#include "core/scan_plan.h"
#include "core/scan_worker.h"
#include "kvbacking/error.h"

namespace kvbacking {
namespace {

constexpr std::int64_t kUnitsPerChunk = 16;  // what a thread takes at a time
constexpr int kMaxThreads = 64;

[[noreturn]] void throw_invalid(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "[scan] " + message);
}

LiveRange live_range(const Layout& layout, const ScanOptions& options) {
  const std::int64_t count = layout.element_count();
  if (!options.live) return {count, count};
  const auto rank = static_cast<std::int64_t>(layout.shape.size());
  const std::int64_t axis = options.axis < 0 ? options.axis + rank : options.axis;
  if (axis < 0 || axis >= rank) {
    throw_invalid("axis " + std::to_string(options.axis) + " is outside the " + std::to_string(rank) +
                  " dimensions of " + layout.describe());
  }
  const std::int64_t size = layout.shape[static_cast<std::size_t>(axis)];
  if (*options.live < 0 || *options.live > size) {
    throw_invalid("live " + std::to_string(*options.live) + " is outside 0 to " + std::to_string(size) + ", axis " +
                  std::to_string(axis) + " of " + layout.describe());
  }
  if (count == 0) return {0, 0};
  std::int64_t inner = 1;
  for (auto i = static_cast<std::size_t>(axis) + 1; i < layout.shape.size(); ++i) inner *= layout.shape[i];
  return {*options.live * inner, size * inner};
}

void validate(const void* data, const Layout& layout, const ScanOptions& options) {
  validate_layout(layout);
  if (data == nullptr && layout.element_count() != 0) throw_invalid("null address for " + layout.describe());
  if (options.threads < 1) throw_invalid("threads must be at least 1, not " + std::to_string(options.threads));
  if ((options.reference == nullptr) != (options.reference_layout == nullptr) && layout.element_count() != 0) {
    throw_invalid("a reference needs both its address and its layout");
  }
  if (options.reference_layout == nullptr) return;
  const Layout& reference = *options.reference_layout;
  validate_layout(reference);
  if (reference.shape != layout.shape) {
    throw_invalid("reference " + reference.describe() + " differs in shape from " + layout.describe());
  }
  const auto is_float = [](DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kFloat32; };
  if (reference.dtype != layout.dtype && !(is_float(reference.dtype) && is_float(layout.dtype))) {
    throw_invalid(std::string("no parity of ") + dtype_name(layout.dtype) + " against " + dtype_name(reference.dtype));
  }
  if (!(options.max_abs >= 0) || !(options.max_rel >= 0)) throw_invalid("tolerances must not be negative or NaN");
}

// The digest is one sequential stream, so with several threads the first one hashes everything (at memory speed) while
// the others take chunks of the rest; it joins them afterwards. Chunks are taken in ascending order.
void scan_in_threads(std::vector<ScanWorker>& workers, const ScanPlan& plan, Digest& digest,
                     std::vector<ParityChunk>& chunks, bool parity) {
  std::atomic<std::int64_t> next_chunk{0};
  std::vector<std::exception_ptr> failures(workers.size());
  const auto take_chunks = [&](ScanWorker& worker) {
    while (true) {
      const std::int64_t chunk = next_chunk.fetch_add(1, std::memory_order_relaxed);
      const std::int64_t first = chunk * kUnitsPerChunk;
      if (first >= plan.unit_count()) return;
      worker.scan_units(first, std::min(first + kUnitsPerChunk, plan.unit_count()), nullptr,
                        parity ? &chunks[static_cast<std::size_t>(chunk)] : nullptr);
    }
  };
  std::vector<std::thread> threads;
  threads.reserve(workers.size());
  for (std::size_t i = 1; i < workers.size(); ++i) {
    try {
      threads.emplace_back([&, i] {
        try {
          take_chunks(workers[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
    } catch (const std::system_error&) {
      break;  // the system has no thread to give: fewer do the same work
    }
  }
  try {
    for (std::int64_t unit = 0; unit < plan.unit_count(); ++unit) {
      workers[0].digest_unit(unit, digest);
    }
    take_chunks(workers[0]);
  } catch (...) {
    failures[0] = std::current_exception();
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace

std::string ScanResult::digest_hex() const {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

ScanResult scan(const void* data, const Layout& layout, const ScanOptions& options) {
  validate(data, layout, options);
  const LiveRange live = live_range(layout, options);
  const bool parity = options.reference_layout != nullptr;
  ScanResult result;
  result.element_count = layout.element_count();
  result.min = result.max = std::numeric_limits<double>::quiet_NaN();
  Digest digest;
  if (result.element_count == 0) {
    result.digest = digest.canonical();
    if (parity) result.parity.emplace();
    return result;
  }

  const ScanPlan plan(data, layout, parity ? options.reference : nullptr, options.reference_layout);
  const std::int64_t chunk_count = (plan.unit_count() + kUnitsPerChunk - 1) / kUnitsPerChunk;
  std::vector<ParityChunk> chunks(parity ? static_cast<std::size_t>(chunk_count) : 0);
  const std::int64_t thread_count = std::min<std::int64_t>({options.threads, chunk_count, kMaxThreads});
  std::vector<ScanWorker> workers(static_cast<std::size_t>(thread_count),
                                  ScanWorker(plan, layout.dtype, live, options));
  if (thread_count == 1) {
    for (std::int64_t chunk = 0; chunk < chunk_count; ++chunk) {
      const std::int64_t first = chunk * kUnitsPerChunk;
      workers[0].scan_units(first, std::min(first + kUnitsPerChunk, plan.unit_count()), &digest,
                            parity ? &chunks[static_cast<std::size_t>(chunk)] : nullptr);
    }
  } else {
    scan_in_threads(workers, plan, digest, chunks, parity);
  }

  Tally total;
  for (ScanWorker& worker : workers) {
    worker.finish();
    total.merge(worker.tally());
  }
  result.nan_count = total.nan_count;
  result.first_nan_index = total.first_nan_index;
  result.inf_count = total.inf_count;
  result.first_inf_index = total.first_inf_index;
  result.live_nan_count = total.live_nan_count;
  result.live_inf_count = total.live_inf_count;
  result.live_all_zero = total.live_all_zero;
  if (total.any_value) {
    result.min = total.min;
    result.max = total.max;
  }
  result.tail_dirty_count = total.tail_dirty_count;
  result.first_tail_dirty_index = total.first_tail_dirty_index;
  result.residue_count = total.residue_count;
  result.first_residue_index = total.first_residue_index;
  result.digest = digest.canonical();
  if (parity) {
    for (std::size_t i = 1; i < workers.size(); ++i) workers[0].parity().merge(workers[i].parity());
    result.parity = workers[0].parity().result(chunks);
  }
  return result;
}

}  // namespace kvbacking
