// Propose, predict, prove, fall back: sets of backings over one model and one contract.
// Threads: every method from any thread, without the GIL. Predictions on one Model wait for each other; lack of a free
// set does not wait, it throws Error(kBackingInUse). Ownership: Session -> Model. A Prediction holds its set (Lease)
// and a View holds it too; both outlive the Session safely.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvbacking/contract.h"
#include "kvbacking/error.h"
#include "kvbacking/evidence.h"
#include "kvbacking/layout.h"
#include "kvbacking/model.h"
#include "kvbacking/owned_surface.h"
#include "kvbacking/state.h"

namespace kvbacking {

enum class Mechanism { kFramework, kRaw, kSurface, kPool, kExternal };
enum class Reuse { kSame, kRewrap, kNew };
enum class Verify { kOff, kLayout, kScan, kFull };
enum class OnIgnored { kCopy, kRaise };
enum class Path { kBacking, kCopy, kFramework };

// "framework", "raw", "surface", "pool", "external"; "backing", "copy", "framework". Static text; never throw.
const char* mechanism_name(Mechanism mechanism) noexcept;
const char* path_name(Path path) noexcept;

// How an input may reach the framework: copied into a native input buffer first, or lent as it is.
enum class Lending { kCopy, kIfPossible, kRequired };

// Caller memory to read during predict(). Lent memory is wrapped where it lies and must not change before predict()
// returned; `owner` is let go of when the framework let go of the wrapper, on whatever thread, maybe a second later.
struct InputArray {
  std::string name;
  const void* data = nullptr;
  Layout layout;
  Lending lending = Lending::kCopy;
  std::shared_ptr<void> owner = {};            // of lent memory
  std::shared_ptr<OwnedSurface> surface = {};  // instead of `data`: passed as it is, never copied
};

// Why memory cannot be lent as an input, or empty: it must have an owner, be dense and begin at a multiple of
// Allocation::granularity().
std::optional<std::string> lending_refusal(const InputArray& input);

// Memory somebody else owns, to be used as the backing of one output (mechanism external). `owner` is let go of when
// the last wrapper, view and session are gone, on whatever thread that happens.
struct ExternalStorage {
  std::string output;
  void* data = nullptr;
  Layout layout;
  std::shared_ptr<void> owner;
  std::shared_ptr<OwnedSurface> surface = {};  // instead of `data`, `layout` is its own
};

struct SessionOptions {
  Mechanism mechanism = Mechanism::kFramework;
  std::size_t depth = 2;
  OnIgnored on_ignored = OnIgnored::kCopy;
  Verify verify = Verify::kLayout;
  Reuse reuse = Reuse::kNew;  // surfaces only
  int scan_threads = 1;
  std::vector<std::vector<ExternalStorage>> external;  // one vector per set; mechanism external only
  // An external surface that was an input before is proposed all the same; sources disagree whether it stays locked.
  bool allow_input_surfaces = false;
};

struct PredictOptions {
  std::optional<std::int64_t> live;       // this call's live length, overrides the contract's
  std::optional<std::uint8_t> fill_byte;  // prove: fill whole payloads with this byte first (raw and fresh surfaces)
  std::shared_ptr<State> state;           // macOS 15; refused with verify full. Concurrent use is refused too
};

struct SessionStats {
  std::int64_t predictions = 0, proposed = 0, accepted = 0, ignored = 0, copied = 0, failed = 0, bytes_copied = 0;
  std::int64_t input_bytes_copied = 0, input_buffers_created = 0, sets_created = 0, quarantined = 0, backing_in_use = 0;
  std::string degraded_reason;  // why the session now runs the control; empty while it does not
};

// Read access to one output's bytes, which stay valid and unwritten while it lives: it holds the set, and outlives
// Prediction and Session. Surfaces stay locked for reading meanwhile. Any thread may read and destroy it; nothing
// throws.
class View {
 public:
  ~View();
  const void* data() const noexcept;
  const Layout& layout() const noexcept;
  struct Impl;
  explicit View(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// One prediction's outputs and evidence. Holds its set until release() or its end. Any thread; accessors do not throw
// unless they say so, and what they refer to lives as long as the Prediction, released or not.
class Prediction {
 public:
  ~Prediction();
  Path path() const noexcept;
  std::vector<std::string> names() const;  // contract outputs first, then unbacked, in the contract's order
  const OutputEvidence& evidence(const std::string& name) const;  // throws Error(kInvalidArgument): unknown name
  const std::vector<OutputEvidence>& evidence() const noexcept;
  const std::vector<InputEvidence>& inputs() const noexcept;  // how each input reached the framework
  std::int64_t live() const noexcept;
  std::int64_t predict_ns() const noexcept;  // the framework call alone
  std::int64_t verify_ns() const noexcept;
  std::int64_t copy_ns() const noexcept;
  // Never copies; the caller owns the View. Throws Error(kBackingInUse) after release(), Error(kInvalidArgument) for an
  // unknown name, Error(kPrediction) for a surface that cannot be locked.
  std::unique_ptr<View> view(const std::string& name) const;
  void release() noexcept;  // idempotent; views made before stay valid and keep the set busy
  bool released() const noexcept;
  struct Impl;
  explicit Prediction(std::unique_ptr<Impl> impl);
  Impl& impl() const noexcept { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

class Session {
 public:
  // Everything that can be refused before a prediction is refused here: names, shapes, dtypes, flexible outputs,
  // surface limits, isAllowedValue:. Shares `model`, keeps copies of the rest. Throws Error(kContract) naming every
  // mismatch, Error(kAllocation), or Error(kInvalidArgument) for a depth of 0.
  static std::shared_ptr<Session> create(std::shared_ptr<Model> model, Contract contract, SessionOptions options);
  ~Session();

  // Inputs are copied, or read where they are lent, and the caller's again on return. Throws Error(kContract) naming
  // every input that does not fit, kInvalidArgument (live length, state, closed session), kBackingInUse (no free set),
  // kPrediction with the NSError verbatim, kIntegrity with every failed check (the set is then never used again, and
  // the session runs the control), kBackingIgnored (on_ignored kRaise), kAllocation.
  std::unique_ptr<Prediction> predict(const std::vector<InputArray>& inputs, const PredictOptions& options = {});
  SessionStats stats() const;  // a copy
  void close() noexcept;       // idempotent; safe with live predictions and views
  bool closed() const noexcept;
  const Contract& contract() const noexcept;
  const SessionOptions& options() const noexcept;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);

 private:
  std::unique_ptr<Impl> impl_;
};

// Every mismatch between contract and model at once; empty when they agree.
std::vector<CheckFailure> check_contract(const Model& model, const Contract& contract);

// The plain control path without a contract: every output copied into memory we own, dense. Flexible outputs allowed.
// Waits for other predictions on the model. Throws Error(kContract), kInvalidArgument (a state of another model),
// kPrediction or kIntegrity as Session::predict does.
std::vector<OwnedOutput> predict_once(const Model& model, const std::vector<InputArray>& inputs,
                                      const std::shared_ptr<State>& state = nullptr);

}  // namespace kvbacking
