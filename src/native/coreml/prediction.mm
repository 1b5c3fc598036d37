#import "kvbacking/session.h"

#include <algorithm>
#include <optional>
#include <utility>

#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/prediction_impl.h"
#include "kvbacking/host.h"

namespace kvbacking {

// Members die in reverse: the surface is unlocked before its set becomes free.
struct View::Impl {
  Lease lease;
  std::shared_ptr<void> owner;
  std::shared_ptr<Surface> surface;
  std::optional<SurfaceUse> use;
  std::unique_ptr<PixelReadLock> lock;
  const void* data = nullptr;
  Layout layout;
  Counted<Counter::kView> counted;
};

View::View(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

View::~View() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  @autoreleasepool {
    impl_.reset();
  }
}

const void* View::data() const noexcept { return impl_->data; }
const Layout& View::layout() const noexcept { return impl_->layout; }

Prediction::Prediction(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Prediction::~Prediction() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  release();
}

Path Prediction::path() const noexcept { return impl_->path; }
std::int64_t Prediction::live() const noexcept { return impl_->live; }
std::int64_t Prediction::predict_ns() const noexcept { return impl_->predict_ns; }
std::int64_t Prediction::verify_ns() const noexcept { return impl_->verify_ns; }
std::int64_t Prediction::copy_ns() const noexcept { return impl_->copy_ns; }
const std::vector<OutputEvidence>& Prediction::evidence() const noexcept { return impl_->evidence; }
const std::vector<InputEvidence>& Prediction::inputs() const noexcept { return impl_->inputs; }

std::vector<std::string> Prediction::names() const {
  std::vector<std::string> names;
  for (const OutputEvidence& evidence : impl_->evidence) names.push_back(evidence.name);
  return names;
}

const OutputEvidence& Prediction::evidence(const std::string& name) const {
  for (const OutputEvidence& evidence : impl_->evidence) {
    if (evidence.name == name) return evidence;
  }
  throw Error(ErrorCode::kInvalidArgument, "[prediction.evidence] there is no output '" + name + "'");
}

std::unique_ptr<View> Prediction::view(const std::string& name) const {
  require_same_process();
  auto view = std::make_unique<View::Impl>();
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    if (impl_->released) {
      throw Error(ErrorCode::kBackingInUse,
                  "[prediction.view] output '" + name + "': the prediction was released; take arrays before release()");
    }
    const auto shown = std::find_if(impl_->outputs.begin(), impl_->outputs.end(),
                                    [&](const ShownOutput& output) { return output.name == name; });
    if (shown == impl_->outputs.end()) {
      throw Error(ErrorCode::kInvalidArgument, "[prediction.view] there is no output '" + name + "'");
    }
    view->lease = impl_->lease;
    view->owner = shown->owner;
    view->surface = shown->surface;
    view->data = shown->data;
    view->layout = shown->layout;
  }
  if (view->surface) {
    guarded("prediction.view", ErrorCode::kPrediction, [&] {
      view->use.emplace(view->surface, SurfaceRole::kMapped, "[prediction.view] the surface of output '" + name + "'");
      view->lock = std::make_unique<PixelReadLock>(CfPtr<CVPixelBufferRef>::retain(view->surface->pixel_buffer()));
    });
    view->data = view->lock->data();
  }
  return std::make_unique<View>(std::move(view));
}

// A thread that fork() left behind may have held the mutex: a child must not wait for it.
void Prediction::release() noexcept {
  if (is_forked_child()) return;
  Lease lease;
  std::vector<ShownOutput> outputs;
  {
    const std::lock_guard<std::mutex> lock(impl_->mutex);
    impl_->released = true;
    std::swap(lease, impl_->lease);
    outputs.swap(impl_->outputs);
  }
  @autoreleasepool {
    outputs.clear();
    lease = {};
  }
}

bool Prediction::released() const noexcept {
  if (is_forked_child()) return true;
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return impl_->released;
}

}  // namespace kvbacking
