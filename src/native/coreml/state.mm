#import "kvbacking/state.h"

#import <CoreML/CoreML.h>

#include <algorithm>
#include <cstring>

#import "coreml/availability.h"
#import "coreml/fork.h"
#import "coreml/guard.h"
#import "coreml/inputs.h"
#import "coreml/model_impl.h"
#import "coreml/state_impl.h"
#include "kvbacking/copy.h"
#include "kvbacking/host.h"

namespace kvbacking {
namespace {

const TensorSpec& find_spec(const State::Impl& impl, const std::string& name) {
  for (const TensorSpec& spec : impl.model->states()) {
    if (spec.name == name) return spec;
  }
  std::string names;
  for (const TensorSpec& spec : impl.model->states()) names += (names.empty() ? "" : ", ") + spec.name;
  throw Error(ErrorCode::kInvalidArgument,
              "[state] there is no state '" + name + "'; the model's states are: " + (names.empty() ? "none" : names));
}

// The view is the framework's and is valid inside the handler only. What `access` throws does not cross the framework.
void with_buffer(State::Impl& impl, const std::string& name, const std::function<void(MLMultiArray*)>& access) {
  std::exception_ptr error;
  std::exception_ptr* const error_place = &error;
  const auto* const call = &access;
  bool called = false;
  bool* const called_place = &called;
  KVB_ASKED_AT_RUN_TIME_BEGIN
  [static_cast<MLState*>(impl.state.get()) getMultiArrayForStateNamed:to_nsstring(name)
                                                              handler:^(MLMultiArray* buffer) {
                                                                *called_place = true;
                                                                auto step = [&] { (*call)(buffer); };
                                                                detail::run_guarded(step, *error_place);
                                                              }];
  KVB_ASKED_AT_RUN_TIME_END
  if (error) std::rethrow_exception(error);
  if (!called) throw Error(ErrorCode::kModel, "[state] the framework gave no buffer for state '" + name + "'");
}

Layout buffer_layout(const std::string& name, MLMultiArray* buffer) {
  const ArrayDescription description = describe(buffer);
  const auto layout = description.layout();
  if (!layout) {
    throw Error(ErrorCode::kModel,
                "[state] the buffer of '" + name + "' has a layout that cannot be read: " + description.dtype_name +
                    join_numbers(description.shape) + " strides " + join_numbers(description.element_strides));
  }
  return *layout;
}

void require_bytes(const std::string& name, const Layout& layout, std::size_t byte_count) {
  if (layout.span_byte_count() <= byte_count) return;
  throw Error(ErrorCode::kModel, "[state] the buffer of '" + name + "' needs " +
                                     std::to_string(layout.span_byte_count()) + " bytes and has " +
                                     std::to_string(byte_count));
}

OwnedOutput read_buffer(State::Impl& impl, const std::string& name) {
  OwnedOutput output;
  output.name = name;
  with_buffer(impl, name, [&](MLMultiArray* buffer) {
    const Layout layout = buffer_layout(name, buffer);
    output.layout = Layout::dense(layout.dtype, layout.shape);
    const auto memory = Allocation::create(std::max<std::size_t>(output.layout.byte_count(), 1));
    read_bytes(buffer, [&](const void* bytes, std::size_t byte_count) {
      require_bytes(name, layout, byte_count);
      copy_elements(bytes, layout, memory->payload(), output.layout);
    });
    output.memory = std::shared_ptr<void>(memory, memory->payload());
  });
  return output;
}

void require_fit(const std::string& name, const std::vector<std::int64_t>& whole, const Layout& source,
                 const std::vector<std::int64_t>& origin) {
  bool fits =
      source.shape.size() == whole.size() && (origin.empty() ? source.shape == whole : origin.size() == whole.size());
  for (std::size_t i = 0; fits && i < origin.size(); ++i) {
    fits = origin[i] >= 0 && source.shape[i] <= whole[i] && origin[i] <= whole[i] - source.shape[i];
  }
  if (fits) return;
  throw Error(ErrorCode::kInvalidArgument, "[state.write] '" + name + "' has shape " + join_numbers(whole) + ", got " +
                                               join_numbers(source.shape) +
                                               (origin.empty() ? "" : " at " + join_numbers(origin)));
}

void write_buffer(State::Impl& impl, const std::string& name, const void* data, const Layout& source,
                  const std::vector<std::int64_t>& origin) {
  with_buffer(impl, name, [&](MLMultiArray* buffer) {
    const Layout before = buffer_layout(name, buffer);
    require_fit(name, before.shape, source, origin);
    write_bytes(buffer, [&](void* bytes, std::size_t byte_count, const std::vector<std::int64_t>& strides) {
      require_bytes(name, Layout::strided(before.dtype, before.shape, strides), byte_count);
      const Layout box = Layout::strided(before.dtype, source.shape, strides);
      std::int64_t first = 0;
      for (std::size_t i = 0; i < origin.size(); ++i) first += origin[i] * strides[i];
      auto* const begin = static_cast<std::byte*>(bytes) + static_cast<std::size_t>(first) * element_size(box.dtype);
      copy_elements(data, source, begin, box);
    });
  });
}

}  // namespace

StateUse::StateUse(State::Impl& state) : state_(state) {
  if (state.busy.exchange(true, std::memory_order_acquire)) {
    throw Error(ErrorCode::kBackingInUse,
                "[state] the state is in use by another call; predictions and accesses of one state must not overlap");
  }
}

State::State(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

State::~State() {
  if (is_forked_child()) {
    static_cast<void>(impl_.release());
    return;
  }
  @autoreleasepool {
    impl_.reset();
  }
}

std::shared_ptr<State> State::create(std::shared_ptr<Model> model) {
  require_same_process();
  auto impl = guarded("state.create", ErrorCode::kModel, [&] {
    if (!has_state()) {
      throw Error(ErrorCode::kUnsupportedPlatform, "[state.create] model state needs macOS 15 or later");
    }
    auto made = std::make_unique<Impl>();
    KVB_ASKED_AT_RUN_TIME_BEGIN
    made->state = adopt(static_cast<id>([model->impl().model.get() newState]));
    KVB_ASKED_AT_RUN_TIME_END
    if (!made->state) throw Error(ErrorCode::kModel, "[state.create] the framework made no state");
    made->model = std::move(model);
    return made;
  });
  return std::shared_ptr<State>(new State(std::move(impl)));
}

std::vector<std::string> State::names() const {
  std::vector<std::string> names;
  for (const TensorSpec& spec : impl_->model->states()) names.push_back(spec.name);
  return names;
}

const std::shared_ptr<Model>& State::model() const noexcept { return impl_->model; }

OwnedOutput State::read(const std::string& name) const {
  require_same_process();
  return guarded("state.read", ErrorCode::kModel, [&] {
    find_spec(*impl_, name);
    const StateUse use(*impl_);
    return read_buffer(*impl_, name);
  });
}

void State::write(const std::string& name, const void* data, const Layout& layout,
                  const std::vector<std::int64_t>& origin) {
  require_same_process();
  guarded("state.write", ErrorCode::kModel, [&] {
    find_spec(*impl_, name);
    const StateUse use(*impl_);
    write_buffer(*impl_, name, data, layout, origin);
  });
}

void State::zero() {
  require_same_process();
  guarded("state.zero", ErrorCode::kModel, [&] {
    const StateUse use(*impl_);
    for (const TensorSpec& spec : impl_->model->states()) {
      with_buffer(*impl_, spec.name, [&](MLMultiArray* buffer) {
        write_bytes(buffer, [&](void* bytes, std::size_t byte_count, const std::vector<std::int64_t>&) {
          std::memset(bytes, 0, byte_count);
        });
      });
    }
  });
}

std::vector<OwnedOutput> State::snapshot() const {
  require_same_process();
  return guarded("state.snapshot", ErrorCode::kModel, [&] {
    const StateUse use(*impl_);
    std::vector<OwnedOutput> buffers;
    for (const TensorSpec& spec : impl_->model->states()) buffers.push_back(read_buffer(*impl_, spec.name));
    return buffers;
  });
}

void State::restore(const std::vector<OwnedOutput>& snapshot) {
  require_same_process();
  guarded("state.restore", ErrorCode::kModel, [&] {
    for (const OwnedOutput& buffer : snapshot) find_spec(*impl_, buffer.name);
    const StateUse use(*impl_);
    for (const OwnedOutput& buffer : snapshot) {
      write_buffer(*impl_, buffer.name, buffer.memory.get(), buffer.layout, {});
    }
  });
}

}  // namespace kvbacking
