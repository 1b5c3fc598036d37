#include "kvbacking/signpost.h"

#include <time.h>

#include <atomic>
#include <mutex>
#include <utility>

// The cross-build's headers are Darwin's open-source libc, which lacks this one: such a module has no Instruments
// marks. What is documented are macros; the functions behind them are not, so that we declare none of our own.
#if defined(__APPLE__) && __has_include(<os/signpost.h>)
#include <os/signpost.h>
#define KVB_HAS_OS_SIGNPOST 1
#endif

namespace kvbacking {
namespace {

std::atomic<bool> recording{false};
std::atomic<std::uint64_t> next_interval{1};
std::mutex record_mutex;

std::vector<SignpostEvent>& record() {
  static auto* events = new std::vector<SignpostEvent>;  // never destroyed: threads of the framework may outlive main
  return *events;
}

void note(Stage stage, bool begins, std::uint64_t interval) noexcept {
  if (!recording.load(std::memory_order_relaxed)) return;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  const std::lock_guard<std::mutex> lock(record_mutex);
  if (record().size() >= kMaxRecordedSignposts) return;
  record().push_back({stage_name(stage), begins, interval, std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec});
}

#ifdef KVB_HAS_OS_SIGNPOST
// The names must be literals: the macro puts them into a section of their own.
#define KVB_MARK(log, begins, interval, name)              \
  do {                                                     \
    if (begins) {                                          \
      os_signpost_interval_begin((log), (interval), name); \
    } else {                                               \
      os_signpost_interval_end((log), (interval), name);   \
    }                                                      \
  } while (false)

void mark(Stage stage, bool begins, std::uint64_t interval) noexcept {
  static os_log_t log = os_log_create(kSignpostSubsystem, kSignpostCategory);
  if (!os_signpost_enabled(log)) return;
  switch (stage) {
    case Stage::kPrepare:
      KVB_MARK(log, begins, interval, "prepare");
      break;
    case Stage::kPredict:
      KVB_MARK(log, begins, interval, "predict");
      break;
    case Stage::kVerify:
      KVB_MARK(log, begins, interval, "verify");
      break;
    case Stage::kCopy:
      KVB_MARK(log, begins, interval, "copy");
      break;
  }
}
#else
void mark(Stage, bool, std::uint64_t) noexcept {}
#endif

}  // namespace

const char* stage_name(Stage stage) noexcept {
  switch (stage) {
    case Stage::kPrepare:
      return "prepare";
    case Stage::kPredict:
      return "predict";
    case Stage::kVerify:
      return "verify";
    case Stage::kCopy:
      return "copy";
  }
  return "";
}

StageSignpost::StageSignpost(Stage stage) noexcept
    : stage_(stage), id_(next_interval.fetch_add(1, std::memory_order_relaxed)) {
  mark(stage_, true, id_);
  note(stage_, true, id_);
}

StageSignpost::~StageSignpost() {
  note(stage_, false, id_);
  mark(stage_, false, id_);
}

void record_signposts(bool on) noexcept { recording.store(on, std::memory_order_relaxed); }

std::vector<SignpostEvent> take_signposts() {
  const std::lock_guard<std::mutex> lock(record_mutex);
  return std::exchange(record(), {});
}

}  // namespace kvbacking
