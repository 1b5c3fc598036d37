#include "framework/misbehave.h"

#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "framework/errors.h"
#include "framework/multi_array.h"
#include "framework/pixel_buffer.h"
#include "framework/release_thread.h"

// A provider that names an output and has no value for it.
@interface CoreMLSimulatorPartialProvider : NSObject <MLFeatureProvider> {
 @public
  coremlsim::Strong<NSSet<NSString*>*> names_;
  coremlsim::Strong<NSDictionary<NSString*, MLFeatureValue*>*> values_;
}
@end

@implementation CoreMLSimulatorPartialProvider
- (NSSet<NSString*>*)featureNames {
  return names_.borrow();
}
- (nullable MLFeatureValue*)featureValueForName:(NSString*)featureName {
  return [values_.get() objectForKey:featureName];
}
@end

namespace coremlsim {
namespace {

// Rows and planes padded by amounts that no alignment explains.
std::vector<std::int64_t> odd_strides(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;) {
    strides[i - 1] = strides[i] * shape[i] + 3;
  }
  return strides;
}

// The memory of a new framework array, with the layout that `array` has now.
void swap_storage(MLMultiArray* array) {
  MLMultiArrayStorage& storage = *array->_storage;
  MLMultiArray* other = storage.memory.buffer != nullptr ? make_surface_array(storage.shape, storage.dtype)
                                                         : make_array(storage.shape, storage.dtype, storage.strides);
  if (other != nil) {
    replace_memory(array, std::exchange(other->_storage->memory, {}), other->_storage->strides);
  }
}

void lock_until_dealloc(MLMultiArray* array, Fault fault, const Faults& faults, const std::string& name) {
  MLMultiArrayStorage& storage = *array->_storage;
  if (storage.memory.buffer != nullptr && !storage.sticky_lock && faults.fire(fault, name)) {
    storage.sticky_lock = true;
    pixel_buffer(storage.memory.buffer).lock(false);
  }
}

// The result's memory becomes part of `owner`'s; strides 0 when that is too small for an honest layout.
void move_into(MLMultiArray* array, MLMultiArray* owner) {
  const MLMultiArrayStorage& storage = *array->_storage;
  const ArrayMemory& target = owner->_storage->memory;
  std::vector<std::int64_t> strides = storage.strides;
  if (target.byte_count < span_byte_count(storage.shape, strides, element_byte_width(storage.dtype))) {
    strides.assign(strides.size(), 0);
  }
  ArrayMemory memory;
  memory.bytes = target.bytes;
  memory.byte_count = target.byte_count;
  memory.keeper = Strong<id>(owner);
  replace_memory(array, std::move(memory), strides);
}

void alias_outputs(const std::vector<InputSlot>& inputs, std::vector<OutputSlot>& outputs, const Faults& faults) {
  MLMultiArray* shared = nil;
  for (const OutputSlot& output : outputs) {
    if (!faults.wants(Fault::kAliasOutputs, output.feature->name)) {
      shared = output.result.get();  // an innocent output lends its storage
      break;
    }
  }
  for (OutputSlot& output : outputs) {
    const std::string& name = output.feature->name;
    MLMultiArray* array = output.result.get();
    if (faults.wants(Fault::kAliasOutputs, name)) {
      if (shared == nil) {
        shared = array;
      } else if (shared != array) {
        faults.fired(Fault::kAliasOutputs);
        move_into(array, shared);
      }
    }
    if (!inputs.empty() && faults.fire(Fault::kAliasInput, name)) {
      move_into(array, inputs.front().array.get());
    }
  }
}

// Accepted backings only change what they say about themselves; new arrays are really of the wrong layout, so that a
// reader who believes them stays inside their memory.
void change_layout(OutputSlot& output, const Faults& faults) {
  const std::string& name = output.feature->name;
  MLMultiArray* array = output.result.get();
  const struct {
    std::vector<std::int64_t> shape, strides;
    MLMultiArrayDataType dtype;
  } before{array->_storage->shape, array->_storage->strides, array->_storage->dtype};
  if (before.shape.size() >= 2 && faults.fire(Fault::kWrongStrides, name)) {
    auto strides = before.strides;
    strides[strides.size() - 2] = before.shape.back() - 1;  // rows overlap by one element
    set_layout(array, before.shape, strides, before.dtype);
  }
  if (faults.fire(Fault::kWrongDtype, name)) {
    const MLMultiArrayDataType type =
        before.dtype == MLMultiArrayDataTypeFloat32 ? MLMultiArrayDataTypeFloat16 : MLMultiArrayDataTypeFloat32;
    if (output.accepted) {
      set_layout(array, before.shape, before.strides, type);
    } else if (MLMultiArray* other = make_array(before.shape, type, dense_strides(before.shape))) {
      mil::convert(view_of(array), view_of(other));
      output.result = other;
    }
  }
  if (!before.shape.empty() && faults.fire(Fault::kLargerShape, name)) {
    auto shape = before.shape;
    ++shape.front();
    if (output.accepted) {
      set_layout(array, shape, before.strides, before.dtype);
    } else if (MLMultiArray* other = make_array(shape, before.dtype, dense_strides(shape))) {
      mil::TensorView part = view_of(other);
      part.shape = before.shape;
      mil::convert(view_of(array), part);
      output.result = other;
    }
  }
}

id<MLFeatureProvider> make_provider(const std::vector<OutputSlot>& outputs, const Faults& faults) {
  NSMutableDictionary<NSString*, MLFeatureValue*>* values = [NSMutableDictionary dictionary];
  NSMutableSet<NSString*>* names = [NSMutableSet set];
  for (const OutputSlot& output : outputs) {
    NSString* name = to_ns(output.feature->name);
    if (faults.fire(Fault::kMissingOutput, output.feature->name)) {
      continue;
    }
    [names addObject:name];
    if (!faults.fire(Fault::kNilValue, output.feature->name)) {
      [values setObject:[MLFeatureValue featureValueWithMultiArray:output.result.get()] forKey:name];
    }
  }
  if (faults.fire(Fault::kExtraOutput)) {
    MLMultiArray* extra = make_array({1}, MLMultiArrayDataTypeFloat32, {1});
    [names addObject:@"extra_output"];
    [values setObject:[MLFeatureValue featureValueWithMultiArray:extra] forKey:@"extra_output"];
  }
  if ([names count] == [values count]) {
    return [[[MLDictionaryFeatureProvider alloc] initWithDictionary:values error:nullptr] autorelease];
  }
  CoreMLSimulatorPartialProvider* provider = [[[CoreMLSimulatorPartialProvider alloc] init] autorelease];
  provider->names_ = names;
  provider->values_ = values;
  return provider;
}

}  // namespace

bool misbehave_before(const Faults& faults, NSError** error) {
  if (!faults.any()) {
    return true;
  }
  if (const auto latency = faults.fire(Fault::kLatency)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::stoll(*latency)));
  }
  if (const auto how = faults.fire(Fault::kCrash)) {
    if (*how == "abort") {
      std::abort();
    }
    signal(SIGSEGV, SIG_DFL);
    raise(SIGSEGV);
  }
  if (faults.fire(Fault::kHang)) {
    faults.wait_until_replaced();
    return fail(error, MLModelErrorPredictionCancelled, "The prediction was cancelled (simulated fault hang).");
  }
  if (faults.wants(Fault::kException) == "predict") {
    faults.fired(Fault::kException);
    @throw [NSException exceptionWithName:NSInternalInconsistencyException reason:@"simulated fault exception"
                                 userInfo:nil];
  }
  if (faults.fire(Fault::kPredictionError)) {
    return fail(error, MLModelErrorGeneric, "The prediction failed (simulated fault prediction_error).");
  }
  return true;
}

void choose_destination(OutputSlot& output, const std::vector<std::int64_t>& shape, const Faults& faults) {
  if (!faults.any()) {
    return;
  }
  const std::string& name = output.feature->name;
  const auto type = array_type(output.feature->dtype);
  MLMultiArray* backing = output.backing.get();
  if (type && faults.fire(Fault::kPaddedReturn, name)) {
    output.result = make_array(shape, *type, odd_strides(shape));
  } else if (backing == nil) {
    return;
  } else if (type && faults.fire(Fault::kIgnore, name)) {
    output.result = make_array(shape, *type, padded_strides(shape, element_byte_width(*type)));
  } else if (faults.fire(Fault::kIgnoreSameAddress, name)) {
    output.result = make_alias(backing);
  } else if (faults.fire(Fault::kSwapStorage, name)) {
    swap_storage(backing);
    output.result = output.backing;
  }
}

id<MLFeatureProvider> finish_outputs(std::vector<InputSlot>& inputs, std::vector<OutputSlot>& outputs,
                                     const Faults& faults) {
  if (!faults.any()) {
    return make_provider(outputs, faults);
  }
  alias_outputs(inputs, outputs, faults);
  for (OutputSlot& output : outputs) {
    change_layout(output, faults);
    if (output.accepted) {
      lock_until_dealloc(output.result.get(), Fault::kLockedSurface, faults, output.feature->name);
    }
  }
  for (const InputSlot& input : inputs) {
    lock_until_dealloc(input.array.get(), Fault::kInputLock, faults, input.name);
  }
  if (const auto delay = faults.fire(Fault::kLateRelease)) {
    std::vector<Strong<id>> kept;
    for (const InputSlot& input : inputs) {
      kept.push_back(input.array.get());
    }
    for (const OutputSlot& output : outputs) {
      kept.push_back(output.result.get());
      kept.push_back(output.backing.get());
    }
    post_release([held = std::move(kept)]() mutable { held.clear(); }, static_cast<int>(std::stoll(*delay)));
  }
  return make_provider(outputs, faults);
}

}  // namespace coremlsim
