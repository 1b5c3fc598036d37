// Marks around the stages of a prediction: os_signpost intervals on macOS, and a record that a program can read on both
// systems. Threads: any; recording takes a lock, marking without a recording takes none. Ownership: values only.
// Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace kvbacking {

enum class Stage { kPrepare, kPredict, kVerify, kCopy };

// "prepare", "predict", "verify", "copy": also the names of the os_signpost intervals, of subsystem kSignpostSubsystem
// and category kSignpostCategory.
const char* stage_name(Stage stage) noexcept;
inline constexpr const char* kSignpostSubsystem = "dev.kvbacking";
inline constexpr const char* kSignpostCategory = "PointsOfInterest";  // what Instruments shows without configuration

// Begins at construction, ends at destruction.
class StageSignpost {
 public:
  explicit StageSignpost(Stage stage) noexcept;
  ~StageSignpost();
  StageSignpost(const StageSignpost&) = delete;
  StageSignpost& operator=(const StageSignpost&) = delete;

 private:
  Stage stage_;
  std::uint64_t id_ = 0;
};

struct SignpostEvent {
  std::string stage;
  bool begins = false;
  std::uint64_t interval = 0;  // begin and end of one interval carry the same number
  std::int64_t at_ns = 0;
};

inline constexpr std::size_t kMaxRecordedSignposts = 65536;  // later ones are not recorded

// Starts or stops recording for the whole process.
void record_signposts(bool on) noexcept;
// What was recorded since the last call, in order.
std::vector<SignpostEvent> take_signposts();

}  // namespace kvbacking
