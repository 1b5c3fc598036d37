// The simulator's switches and counters, for its own classes and for the Python module. Pure C++.
// Threads: any; options are copied out under a lock, counters are atomic.
// Ownership: values only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "mil/engine.h"

namespace coremlsim {

inline constexpr const char* kVersion = "0.1.0";
inline constexpr const char* kChipName = "simulated";

// Where the documentation leaves freedom. Defaults: the least convenient legal choice.
struct Options {
  std::size_t row_alignment = 64;          // row bytes are rounded up to a multiple of this ...
  std::size_t row_padding = 64;            // ... and then this many bytes are added (surfaces, framework outputs)
  std::size_t surface_max_extent = 16384;  // width and height
  bool pad_framework_outputs = true;
  bool framework_surfaces = false;        // framework-allocated Float16 outputs live in pixel buffers
  bool backings_in_batch = false;         // batch predictions honour outputBackings
  bool half_buffers_for_float32 = false;  // a Float16 pixel buffer may back a Float32 or Double output
  bool mutable_bytes_swap = false;        // getMutableBytesWithHandler: switches to another, padded buffer
  bool foreign_release_thread = true;     // deallocators run on a thread of the framework
  int input_hold_ms = 1000;  // inputs stay retained until the model's next prediction ends, at most this long
  bool poison = true;        // undefined contents are filled with 0xFF bytes (NaN in every float type)
  int threads = 0;           // of the engine; 0: its own choice
  // Numerics of the simulated device that MLComputeUnits (the index) selects.
  std::array<mil::Numerics, 4> numerics{};
  // When set, a prediction with an accepted backing runs with these numerics (the backing changed the placement).
  std::optional<mil::Numerics> backed_numerics;
};

Options options();
// Replaces the options named in a JSON object, e.g. {"row_padding": 0, "numerics": "fp16"}; the others keep their
// values. Throws std::invalid_argument naming the key. Numerics: "fp32" | "fp16", or an object by compute unit.
void configure(const std::string& json);
void reset_options();
std::string options_json();

// Native objects alive now.
enum class Live { kArray, kSurface, kPixelBuffer, kPool, kModel, kState, kCount };
void count_live(Live kind, int delta) noexcept;
std::map<std::string, std::int64_t> live_counts();

// Ways in which the *client* broke the documented contract.
enum class Violation {
  kOverlap,          // two predictions on one model at once
  kStateOverlap,     // two predictions on one state at once
  kStateAccess,      // a state read or written while a prediction with it was in flight
  kUnpairedLock,     // unlock without lock, or with other flags
  kLockedBacking,    // a locked pixel buffer was proposed
  kAliasedBackings,  // backings overlap each other or an input
  kCount
};
void count_violation(Violation kind) noexcept;
std::map<std::string, std::int64_t> violations();
void reset_violations() noexcept;

// Environment: KVBACKING_SIMULATOR_OPTIONS and KVBACKING_SIMULATOR_FAULTS, read once. Empty when all was well;
// otherwise every load and prediction fails with this text.
const std::string& environment_error();

// Classes and selectors introduced after this macOS version are absent ("14", "14.4", "15"); empty: nothing is hidden.
// Throws std::invalid_argument. Not for use while other threads call the framework.
void hide_api(const std::string& newest_version);
std::string hidden_api();
bool api_available(double introduced) noexcept;

// Runs everything that waits on the framework's release thread; false when it did not finish in time.
bool drain_releases(int timeout_ms);

}  // namespace coremlsim
