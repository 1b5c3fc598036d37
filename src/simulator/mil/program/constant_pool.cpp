#include "mil/program/constant_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "mil/kernels/kernels.h"

namespace coremlsim::mil {
namespace {

template <class T>
T load(const std::uint8_t* raw, std::int64_t index) {
  T value;
  std::memcpy(&value, raw + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

bool is_aligned(const void* p, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(p) % bytes == 0; }

bool is_stored_form(MilType type) {
  return type == MilType::kFloat32 || type == MilType::kInt32 || type == MilType::kBool;
}

AlignedBuffer copy_of(std::span<const std::uint8_t> raw) {
  AlignedBuffer buffer = allocate(static_cast<std::int64_t>(raw.size()));
  if (!raw.empty()) std::memcpy(buffer.get(), raw.data(), raw.size());
  return buffer;
}

}  // namespace

std::int64_t decode_integer(MilType type, const std::uint8_t* raw, std::int64_t index) {
  const int bits = bit_width(type);
  if (bits < 8) {  // an element of 3 or 6 bits may straddle two bytes
    const std::int64_t at = index * bits;
    const std::int64_t last = (at + bits - 1) / 8;
    unsigned word = raw[at / 8];
    if (last != at / 8) word |= static_cast<unsigned>(raw[last]) << 8;
    const int value = static_cast<int>((word >> (at % 8)) & ((1U << bits) - 1U));
    return type == MilType::kInt4 && value >= 8 ? value - 16 : value;
  }
  switch (type) {
    case MilType::kInt8:
      return load<std::int8_t>(raw, index);
    case MilType::kInt16:
      return load<std::int16_t>(raw, index);
    case MilType::kUInt16:
      return load<std::uint16_t>(raw, index);
    case MilType::kInt32:
      return load<std::int32_t>(raw, index);
    case MilType::kUInt32:
      return load<std::uint32_t>(raw, index);
    case MilType::kInt64:
    case MilType::kUInt64:
      return load<std::int64_t>(raw, index);
    default:
      return raw[index];
  }
}

void decode_to_float(MilType type, const std::uint8_t* raw, std::int64_t first, std::int64_t count, float* out) {
  switch (type) {
    case MilType::kFloat16:
      if (is_aligned(raw, 2)) {
        kernels().f16_to_f32(reinterpret_cast<const std::uint16_t*>(raw) + first, out, count);
      } else {
        for (std::int64_t i = 0; i < count; ++i) {
          const auto half = load<std::uint16_t>(raw, first + i);
          kernels().f16_to_f32(&half, out + i, 1);
        }
      }
      return;
    case MilType::kFloat32:
      std::memcpy(out, raw + first * 4, static_cast<std::size_t>(count) * 4);
      return;
    case MilType::kFloat64:
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(load<double>(raw, first + i));
      return;
    case MilType::kBFloat16:
      for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = static_cast<std::uint32_t>(load<std::uint16_t>(raw, first + i)) << 16;
        std::memcpy(out + i, &bits, 4);
      }
      return;
    default:
      for (std::int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(decode_integer(type, raw, first + i));
  }
}

const void* ConstantPool::as_is(const Value& value) noexcept {
  const MilType type = value.type.tensor.dtype;
  const auto alignment = static_cast<std::size_t>(storage_bytes(storage_of(type)));
  return is_stored_form(type) && is_aligned(value.raw.data(), alignment) ? value.raw.data() : nullptr;
}

const void* ConstantPool::decoded(const Value& value) {
  const MilType type = value.type.tensor.dtype;
  const Storage storage = storage_of(type);
  if (const void* found = as_is(value)) return found;

  const std::lock_guard lock(mutex_);
  AlignedBuffer& slot = decoded_[&value];
  if (slot) return slot.get();
  if (is_stored_form(type)) {  // but not aligned
    slot = copy_of(value.raw);
    byte_count_ += static_cast<std::int64_t>(value.raw.size());
    return slot.get();
  }
  const std::int64_t count = element_count(value.type.tensor.dims, "constant");
  byte_count_ += count * storage_bytes(storage);
  slot = allocate(count * storage_bytes(storage));
  if (storage == Storage::kFloat) {
    decode_to_float(type, value.raw.data(), 0, count, static_cast<float*>(slot.get()));
  } else {
    auto* out = static_cast<std::int32_t*>(slot.get());
    for (std::int64_t i = 0; i < count; ++i) {
      out[i] = static_cast<std::int32_t>(std::clamp<std::int64_t>(decode_integer(type, value.raw.data(), i),
                                                                  std::numeric_limits<std::int32_t>::min(),
                                                                  std::numeric_limits<std::int32_t>::max()));
    }
  }
  return slot.get();
}

const void* ConstantPool::half(const Value& value) {
  if (is_aligned(value.raw.data(), 2)) return value.raw.data();
  const std::lock_guard lock(mutex_);
  AlignedBuffer& slot = halves_[&value];
  if (!slot) {
    slot = copy_of(value.raw);
    byte_count_ += static_cast<std::int64_t>(value.raw.size());
  }
  return slot.get();
}

const Value& ConstantPool::computed(const Operation& op, std::size_t output, const std::function<Value()>& compute) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = computed_.find({&op, output}); it != computed_.end()) return *it->second;
  }
  auto value = std::make_unique<Value>(compute());  // outside the lock: it may decode other constants
  value->raw = value->owned;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = computed_.emplace(std::pair{&op, output}, std::move(value));
  if (is_new) byte_count_ += static_cast<std::int64_t>(found->second->owned.size());
  return *found->second;
}

std::int64_t ConstantPool::byte_count() const {
  const std::lock_guard lock(mutex_);
  return byte_count_;
}

}  // namespace coremlsim::mil
