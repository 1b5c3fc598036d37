#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/stream.cpp"
#include "core/targets.h"  // before Highway
//
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/stream.h"

HWY_BEFORE_NAMESPACE();
namespace kvbacking::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

void CopyStreaming(const std::byte* source, std::byte* destination, std::size_t byte_count) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* from = reinterpret_cast<const std::uint8_t*>(source);
  auto* to = reinterpret_cast<std::uint8_t*>(destination);
  // Streaming stores need aligned addresses.
  std::size_t i = std::min((lanes - reinterpret_cast<std::uintptr_t>(to) % lanes) % lanes, byte_count);
  if (i > 0) std::memcpy(to, from, i);
  for (; byte_count - i >= lanes; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  if (i < byte_count) std::memcpy(to + i, from + i, byte_count - i);
}

StreamBytes ChooseStream() { return CopyStreaming; }

}  // namespace kvbacking::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kvbacking {

HWY_EXPORT(ChooseStream);

StreamBytes stream_bytes() noexcept {
  static const StreamBytes chosen = HWY_DYNAMIC_DISPATCH(ChooseStream)();
  return chosen;
}

void stream_fence() noexcept { hwy::FlushStream(); }

}  // namespace kvbacking
#endif
