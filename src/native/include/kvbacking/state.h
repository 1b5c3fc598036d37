// A stateful model's buffers (MLState): read, write, zero, snapshot and restore. macOS 15 and later, asked for at run
// time.
// Threads: any, without the GIL. One State serves one call at a time: a prediction or an access that finds it in use
// throws Error(kBackingInUse) instead of waiting. Ownership: State -> Model. Values that are read are copies we own.
// Errors: every call but names() and model() may throw Error(kModel) when the framework gives no usable buffer.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kvbacking/layout.h"
#include "kvbacking/model.h"

namespace kvbacking {

// A dense copy of one output or one state, in memory we own.
struct OwnedOutput {
  std::string name;
  Layout layout;
  std::shared_ptr<void> memory;  // its payload's address is get()
};

class State {
 public:
  // New buffers, all zero. Throws Error(kUnsupportedPlatform) before macOS 15. A model without states gives an empty
  // State, with which a prediction behaves as without one.
  static std::shared_ptr<State> create(std::shared_ptr<Model> model);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::vector<std::string> names() const;  // sorted
  // Copies. Throws Error(kInvalidArgument) for an unknown name.
  OwnedOutput read(const std::string& name) const;
  // Copies from caller memory, any strides, dtype equal or fp16 <-> fp32, straight into the buffer: the state's whole
  // shape, or with `origin` the box that begins at these indices; the rest stays. Throws Error(kInvalidArgument) on
  // another name or dtype, or a shape that does not fit.
  void write(const std::string& name, const void* data, const Layout& layout,
             const std::vector<std::int64_t>& origin = {});
  void zero();                                // every buffer
  std::vector<OwnedOutput> snapshot() const;  // every buffer, copied
  // Copies; names, shapes and dtypes must be those of a snapshot of this model. Throws as write() does.
  void restore(const std::vector<OwnedOutput>& snapshot);
  const std::shared_ptr<Model>& model() const noexcept;

  struct Impl;  // Objective-C++ side, coreml/state_impl.h
  Impl& impl() const noexcept { return *impl_; }

 private:
  explicit State(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvbacking
