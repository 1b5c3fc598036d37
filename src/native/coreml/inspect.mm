#import "coreml/inspect.h"

#include "core/checks.h"
#include "core/sentinel.h"
#import "coreml/inputs.h"
#import "coreml/nserror.h"
#include "kvbacking/copy.h"
#include "kvbacking/signpost.h"

#include <cstdio>

namespace kvbacking {
namespace {

void fail(std::vector<CheckFailure>& failures, const std::string& output, Check check, std::string expected,
          std::string actual) {
  failures.push_back({output, check_name(check), std::move(expected), std::move(actual)});
}

std::string hex(std::uintptr_t value) {
  char text[2 + 16 + 1];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

// Where the returned bytes are, without reading them; a surface of ours is recognised, never opened.
void locate(MLMultiArray* array, const Backing* backing, OutputResult& result) {
  if (CVPixelBufferRef pixel_buffer = [array pixelBuffer]; pixel_buffer != nullptr) {
    IOSurfaceRef io_surface = CVPixelBufferGetIOSurface(pixel_buffer);
    result.range.surface_id = io_surface == nullptr ? 0 : IOSurfaceGetID(io_surface);
    result.returned_byte_count = CVPixelBufferGetBytesPerRow(pixel_buffer) * CVPixelBufferGetHeight(pixel_buffer);
    if (backing != nullptr && backing->surface) {
      result.evidence.same_storage =
          pixel_buffer == backing->surface->pixel_buffer() && result.range.surface_id == backing->surface->id();
    }
    if (io_surface != nullptr) {
      if (result.evidence.same_storage.value_or(false)) result.range = backing->surface->range({});
      return;  // another surface is told apart by its ID
    }
  }
  read_bytes(array, [&](const void* bytes, std::size_t byte_count) {
    result.range.begin = reinterpret_cast<std::uintptr_t>(bytes);
    result.range.end = result.range.begin + byte_count;
    result.returned_byte_count = byte_count;
  });
}

void judge_storage(const Backing& backing, MLMultiArray* array, OutputResult& result) {
  OutputEvidence& evidence = result.evidence;
  evidence.same_object = array == backing.array.get();
  const std::size_t span = result.returned ? result.returned->span_byte_count() : 0;
  if (backing.surface) {
    if (!evidence.same_storage) evidence.same_storage = false;  // no pixel buffer at all
    evidence.in_range = *evidence.same_storage && result.returned && span <= backing.surface->byte_count();
  } else {
    const MemoryRange ours = backing.range();
    const std::uintptr_t begin = result.range.begin;
    evidence.same_storage = result.range.surface_id == 0 && begin >= ours.begin && begin < ours.end;
    evidence.in_range = *evidence.same_storage && result.returned && span <= ours.end - begin;
  }
  const bool object = *evidence.same_object || !check_enabled(Check::kSameObject);
  const bool storage = *evidence.same_storage || !check_enabled(Check::kSameStorage);
  evidence.accepted = object && storage;
}

void judge_layout(const OutputPlan& plan, const ArrayDescription& description, const Layout* proposed,
                  OutputResult& result, std::vector<CheckFailure>& failures) {
  bool ok = true;
  const auto wrong = [&](Check kind, bool good) {  // texts are made for failures only
    const bool is_wrong = !good && check_enabled(kind);
    ok = ok && !is_wrong;
    return is_wrong;
  };
  if (plan.dense) {
    if (wrong(Check::kShape, description.shape == plan.dense->shape)) {
      fail(failures, plan.name, Check::kShape, join_numbers(plan.dense->shape), join_numbers(description.shape));
    }
    if (wrong(Check::kDtype, description.dtype == plan.dense->dtype)) {
      fail(failures, plan.name, Check::kDtype, dtype_name(plan.dense->dtype), description.dtype_name);
    }
  }
  if (proposed == nullptr) {
    if (wrong(Check::kStrides, result.returned.has_value())) {
      fail(failures, plan.name, Check::kStrides, "strides under which no two elements share memory",
           join_numbers(description.element_strides) + " for shape " + join_numbers(description.shape));
    }
  } else if (wrong(Check::kStrides,
                   same_strides(proposed->shape, description.element_strides, proposed->element_strides))) {
    fail(failures, plan.name, Check::kStrides, join_numbers(proposed->element_strides),
         join_numbers(description.element_strides));
  }
  result.evidence.layout_ok = ok;
  result.evidence.checked.push_back("layout_ok");
}

}  // namespace

OutputResult inspect_output(const SessionPlan& plan, std::size_t output, const BackingSet& set,
                            RetainPtr<MLMultiArray*> array, std::vector<CheckFailure>& failures) {
  const OutputPlan& output_plan = plan.outputs[output];
  const Backing* const backing = set.proposes() && output_plan.backed ? &set.backings()[output] : nullptr;
  OutputResult result;
  OutputEvidence& evidence = result.evidence;
  evidence.name = output_plan.name;
  evidence.mechanism = mechanism_name(backing == nullptr ? Mechanism::kFramework : plan.options.mechanism);
  evidence.proposed = backing != nullptr;
  const ArrayDescription description = describe(array.get());
  evidence.shape = description.shape;
  evidence.strides = description.element_strides;
  evidence.dtype = description.dtype_name;
  result.returned = description.layout();
  locate(array.get(), backing, result);
  result.range.name = output_plan.name;
  if (backing != nullptr) {
    evidence.allowed = backing->allowed;
    judge_storage(*backing, array.get(), result);
    evidence.checked.insert(evidence.checked.end(), {"allowed", "same_object", "same_storage", "in_range"});
    if (*evidence.accepted && !*evidence.in_range && check_enabled(Check::kInRange) && *evidence.same_storage) {
      const MemoryRange ours = backing->range();
      fail(failures, output_plan.name, Check::kInRange,
           "every element within the " + std::to_string(backing->layout.span_byte_count()) + " bytes at " +
               hex(ours.begin),
           "shape " + join_numbers(description.shape) + " strides " + join_numbers(description.element_strides) +
               " from " + hex(result.range.begin));
    }
  }
  const bool accepted = evidence.accepted.value_or(false);
  // What is copied must have a layout that can be copied, whatever was asked to be verified.
  if (plan.options.verify != Verify::kOff || !accepted) {
    judge_layout(output_plan, description, accepted ? &backing->layout : nullptr, result, failures);
  }
  result.array = std::move(array);
  return result;
}

void check_distinct(std::vector<OutputResult>& results, const MemoryRanges& inputs,
                    std::vector<CheckFailure>& failures) {
  const MemoryRanges viewed = viewed_memory();
  for (std::size_t i = 0; i < results.size(); ++i) {
    OutputResult& result = results[i];
    bool distinct = true;
    const auto compare = [&](const MemoryRange& other, const char* what) {
      if (!check_enabled(Check::kDistinct) || !result.range.overlaps(other)) return;
      distinct = false;
      fail(failures, result.evidence.name, Check::kDistinct, "memory of its own",
           std::string("memory shared with ") + what + " '" + other.name + "'");
    };
    for (std::size_t j = 0; j < results.size(); ++j) {
      if (j != i) compare(results[j].range, "output");
    }
    for (const MemoryRange& input : inputs) compare(input, "input");
    for (const MemoryRange& range : viewed) compare(range, "an earlier prediction's output");
    result.evidence.distinct = distinct;
    result.evidence.checked.push_back("distinct");
  }
}

void take_output(const SessionPlan& plan, std::size_t output, BackingSet& set, OutputResult& result, bool compare,
                 std::vector<CheckFailure>& failures) {
  const std::string& name = plan.outputs[output].name;
  if (result.evidence.accepted.value_or(false)) {
    const Backing& backing = set.backings()[output];
    result.data = backing.data;
    result.layout = backing.layout;
    result.owner = backing.owner;
    result.surface = backing.surface;
    return;
  }
  if (!result.returned) {
    if (failures.empty()) {  // its own check is switched off
      fail(failures, name, Check::kDtype, "an array that can be copied", result.evidence.dtype);
    }
    return;
  }
  const StageSignpost signpost(Stage::kCopy);
  const Layout dense = Layout::dense(result.returned->dtype, result.returned->shape);
  CopyTarget& target = set.copy_target(output, dense);
  std::byte* const destination = target.memory->payload();
  bool equal = true, readable = true;
  read_bytes(result.array.get(), [&](const void* bytes, std::size_t byte_count) {
    readable = result.returned->span_byte_count() <= byte_count;
    if (!readable) return;
    copy_elements(bytes, *result.returned, destination, dense);
    if (compare) equal = equal_elements(bytes, *result.returned, destination, dense);
  });
  if (!readable) {
    fail(failures, name, Check::kInRange,
         std::to_string(result.returned->span_byte_count()) + " readable bytes for " + result.returned->describe(),
         std::to_string(result.returned_byte_count) + " bytes");
    return;
  }
  if (compare) result.evidence.checked.push_back("copied");
  if (!equal) {
    failures.push_back({name, "copied", "a copy equal to what came back", "bytes that changed during the copy"});
  }
  result.evidence.bytes_copied = dense.byte_count();
  result.data = destination;
  result.layout = dense;
  result.owner = target.memory;
  result.array = {};
}

}  // namespace kvbacking
