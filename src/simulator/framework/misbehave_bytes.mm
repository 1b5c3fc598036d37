// Faults in what is written: which rows, which elements, and which bytes around them.
#include <CoreML/CoreML.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "framework/misbehave.h"
#include "framework/multi_array.h"

namespace coremlsim {
namespace {

constexpr std::size_t kOverrunByteCount = 16;
constexpr int kOverrunByte = 0xA5;

std::int64_t row_count(const mil::TensorView& view) {
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < view.shape.size(); ++i) {
    rows *= view.shape[i];
  }
  return rows;
}

std::byte* row_address(const mil::TensorView& view, std::int64_t row) {
  std::int64_t offset = 0;
  for (std::size_t i = view.shape.size() < 2 ? 0 : view.shape.size() - 1; i-- > 0;) {
    offset += row % view.shape[i] * view.strides[i];
    row /= view.shape[i];
  }
  return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(offset) * mil::byte_width(view.dtype);
}

mil::TensorView row_view(const mil::TensorView& view, std::int64_t row) {
  mil::TensorView one{view.dtype, {}, {}, row_address(view, row)};
  if (!view.shape.empty()) {
    one.shape = {view.shape.back()};
    one.strides = {view.strides.back()};
  }
  return one;
}

// A dense copy in the same type; owns its bytes.
struct Dense {
  explicit Dense(const mil::TensorView& source, mil::DataType type)
      : bytes(span_byte_count(source.shape, dense_strides(source.shape), mil::byte_width(type))),
        view{type, source.shape, dense_strides(source.shape), bytes.data()} {
    mil::convert(source, view);
  }
  std::vector<std::byte> bytes;
  mil::TensorView view;
};

void copy_rows(const mil::TensorView& from, const mil::TensorView& to, const std::function<bool(std::int64_t)>& skip) {
  for (std::int64_t row = 0; row < row_count(from); ++row) {
    if (!skip(row)) {
      mil::convert(row_view(from, row), row_view(to, row));
    }
  }
}

void write_partially(const std::string& part, const mil::TensorView& from, const mil::TensorView& to) {
  const std::int64_t rows = row_count(from);
  const std::int64_t quarter = std::max<std::int64_t>(1, rows / 4);
  if (part == "head") {
    copy_rows(from, to, [=](std::int64_t row) { return row < quarter; });
  } else if (part == "middle") {
    const std::int64_t start = (rows - quarter) / 2;
    copy_rows(from, to, [=](std::int64_t row) { return row >= start && row < start + quarter; });
  } else if (part == "tail") {
    copy_rows(from, to, [=](std::int64_t row) { return row >= rows - quarter; });
  } else {
    copy_rows(from, to, [=](std::int64_t row) { return row == rows / 2; });
  }
  if (part == "one_element" && !from.shape.empty()) {
    mil::TensorView source = row_view(from, rows / 2);
    mil::TensorView target = row_view(to, rows / 2);
    const std::int64_t left_out = source.shape[0] / 2;
    const auto copy_span = [&](std::int64_t begin, std::int64_t end) {
      mil::TensorView a = source;
      mil::TensorView b = target;
      a.shape = b.shape = {end - begin};
      a.data =
          static_cast<std::byte*>(a.data) + static_cast<std::size_t>(begin * a.strides[0]) * mil::byte_width(a.dtype);
      b.data =
          static_cast<std::byte*>(b.data) + static_cast<std::size_t>(begin * b.strides[0]) * mil::byte_width(b.dtype);
      mil::convert(a, b);
    };
    copy_span(0, left_out);
    copy_span(left_out + 1, source.shape[0]);
  }
}

std::byte* element_address(const mil::TensorView& view, const std::string& position) {
  std::int64_t count = 1;
  for (const std::int64_t extent : view.shape) {
    count *= extent;
  }
  std::int64_t index = position == "first" ? 0 : position == "middle" ? count / 2 : count - 1;
  std::int64_t offset = 0;
  for (std::size_t i = view.shape.size(); i-- > 0;) {
    offset += index % view.shape[i] * view.strides[i];
    index /= view.shape[i];
  }
  return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(offset) * mil::byte_width(view.dtype);
}

template <class Bits>
void store(std::byte* address, Bits bits) {
  std::memcpy(address, &bits, sizeof bits);
}

// Bits of a special value in each float type; false for integers.
bool store_special(std::byte* address, mil::DataType type, std::uint16_t half, std::uint32_t single,
                   std::uint64_t wide) {
  switch (type) {
    case mil::DataType::kFloat16:
      store(address, half);
      return true;
    case mil::DataType::kFloat32:
      store(address, single);
      return true;
    case mil::DataType::kFloat64:
      store(address, wide);
      return true;
    default:
      return false;
  }
}

bool overwrite_row_gaps(const mil::TensorView& view) {
  if (view.shape.size() < 2 || view.strides.back() != 1) {
    return false;
  }
  const std::size_t width = mil::byte_width(view.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(view.shape.back()) * width;
  const std::size_t pitch = static_cast<std::size_t>(view.strides[view.strides.size() - 2]) * width;
  if (pitch <= row_bytes) {
    return false;
  }
  // Behind the last row there may be nothing that belongs to the array.
  for (std::int64_t row = 0; row + 1 < row_count(view); ++row) {
    std::memset(row_address(view, row) + row_bytes, kOverrunByte, pitch - row_bytes);
  }
  return row_count(view) > 1;
}

void run_over(const mil::TensorView& view, const std::string& name, const Faults& faults, bool has_room_before) {
  auto* begin = static_cast<std::byte*>(view.data);
  if (const auto where = faults.wants(Fault::kOverrun, name)) {
    if (*where == "end") {
      std::memset(begin + span_byte_count(view.shape, view.strides, mil::byte_width(view.dtype)), kOverrunByte,
                  kOverrunByteCount);
      faults.fired(Fault::kOverrun);
    } else if (overwrite_row_gaps(view)) {
      faults.fired(Fault::kOverrun);
    }
  }
  if (has_room_before && faults.fire(Fault::kUnderrun, name)) {
    std::memset(begin - kOverrunByteCount, kOverrunByte, kOverrunByteCount);
  }
}

}  // namespace

void write_output(OutputSlot& output, const mil::TensorView& tensor, ModelRuntime& runtime, const Faults& faults) {
  const mil::TensorView target = view_of(output.result.get());
  if (!faults.any()) {
    mil::convert(tensor, target);
    return;
  }
  const std::string& name = output.feature->name;
  if (faults.wants(Fault::kStalePrevious, name)) {
    Dense now(tensor, target.dtype);
    const std::lock_guard lock(runtime.previous_mutex);
    if (runtime.previous_serial != faults.serial()) {  // nothing survives from settings of long ago
      runtime.previous.clear();
      runtime.previous_serial = faults.serial();
    }
    auto& before = runtime.previous[name];
    std::swap(before, now.bytes);
    if (now.bytes.size() == before.size()) {
      faults.fired(Fault::kStalePrevious);
      now.view.data = now.bytes.data();
      mil::convert(now.view, target);
      return;
    }
  }
  if (faults.fire(Fault::kStale, name)) {
    return;
  }
  if (const auto part = faults.fire(Fault::kPartialWrite, name)) {
    write_partially(*part, tensor, target);
  } else if (faults.fire(Fault::kStage, name)) {
    const Dense staged(tensor, target.dtype);
    mil::convert(staged.view, target);
  } else {
    mil::convert(tensor, target);
  }
}

void corrupt_output(OutputSlot& output, const Faults& faults) {
  if (!faults.any()) {
    return;
  }
  const std::string& name = output.feature->name;
  const mil::TensorView view = view_of(output.result.get());
  if (std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end()) {
    return;
  }
  if (faults.fire(Fault::kAllZero, name)) {
    std::int64_t zero = 0;
    const mil::TensorView source{mil::DataType::kInt64, view.shape, std::vector<std::int64_t>(view.shape.size(), 0),
                                 &zero};
    mil::convert(source, view);
  }
  if (const auto where = faults.wants(Fault::kNan, name);
      where && store_special(element_address(view, *where), view.dtype, 0x7E00, 0x7FC00000, 0x7FF8000000000000)) {
    faults.fired(Fault::kNan);
  }
  if (const auto where = faults.wants(Fault::kInf, name);
      where && store_special(element_address(view, *where), view.dtype, 0x7C00, 0x7F800000, 0x7FF0000000000000)) {
    faults.fired(Fault::kInf);
  }
  if (const auto what = faults.wants(Fault::kDirtyTail, name)) {
    std::byte* last = element_address(view, "last");
    if (*what == "byte") {
      *last = std::byte{1};
      faults.fired(Fault::kDirtyTail);
    } else if (store_special(last, view.dtype, 0x8000, 0x80000000, 0x8000000000000000)) {
      faults.fired(Fault::kDirtyTail);
    }
  }
  run_over(view, name, faults, output.result.get()->_storage->memory.buffer == nullptr);
}

}  // namespace coremlsim
