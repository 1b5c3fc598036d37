// read_state and write_state: between the caller's memory and the engine's elements.
#include <cstring>

#include "mil/kernels/kernels.h"
#include "mil/ops/call.h"
#include "mil/ops/parallel.h"
#include "mil/ops/registry.h"

namespace coremlsim::mil {
namespace {

void check_type(Call& c, const Info& state) {
  if (state.dtype != MilType::kFloat16 && state.dtype != MilType::kFloat32 && state.dtype != MilType::kInt32) {
    c.fail("a state of type " + std::string(type_name(state.dtype)) + " is not supported");
  }
}

void read_state(Call& c) {
  const Info& state = c.state("input");
  check_type(c, state);
  const bool half = state.dtype == MilType::kFloat16;
  const std::int64_t count = state.count;
  const Slot in = state.slot, out = c.out(state.shape);
  c.run([=](Frame& f) {
    for_elements(f.pool, count, [&](std::int64_t begin, std::int64_t end) {
      if (half) {
        kernels().f16_to_f32(f.get<std::uint16_t>(in) + begin, f.f32(out) + begin, end - begin);
      } else {
        std::memcpy(f.f32(out) + begin, f.f32(in) + begin, static_cast<std::size_t>(end - begin) * 4);
      }
    });
  });
}

void write_state(Call& c) {
  const Info& state = c.state("input");
  const Info& data = c.in("data");
  check_type(c, state);
  if (data.shape != state.shape || data.storage != state.storage) {
    c.fail("data " + describe(data.shape) + " does not fit the state's " + describe(state.shape));
  }
  const bool half = state.dtype == MilType::kFloat16;
  const std::int64_t count = state.count;
  const Slot in = data.slot, out = state.slot;
  c.run([=](Frame& f) {
    for_elements(f.pool, count, [&](std::int64_t begin, std::int64_t end) {
      if (half) {
        kernels().f32_to_f16(f.f32(in) + begin, f.get<std::uint16_t>(out) + begin, end - begin);
      } else {
        std::memcpy(f.f32(out) + begin, f.f32(in) + begin, static_cast<std::size_t>(end - begin) * 4);
      }
    });
  });
}

}  // namespace

OpTable state_ops() { return {{"read_state", read_state}, {"write_state", write_state}}; }

}  // namespace coremlsim::mil
