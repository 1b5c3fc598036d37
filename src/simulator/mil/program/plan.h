// A program made ready for one set of input shapes: steps in order, and where each tensor lies.
// Threads: immutable once planned; safe everywhere.
// Ownership: owns the constants that were folded while planning; steps borrow the Program's constants.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "mil/program/aligned_buffer.h"
#include "mil/program/frame.h"
#include "mil/program/graph.h"
#include "mil/program/tensor.h"

namespace coremlsim::mil {

enum class Place : std::uint8_t { kFixed, kArena, kState, kConstant };

struct SlotPlace {
  Place place = Place::kFixed;
  void* fixed = nullptr;
  int index = -1;  // of the buffer, of the state or of the constant
};

// Lives from step `first` to step `last` (both included).
struct PlannedBuffer {
  std::int64_t bytes = 0;
  int first = 0, last = 0;
  std::int64_t offset = -1;
};

struct PlannedStep {
  int node = 0;
  Step run;
  std::vector<std::pair<Slot, std::int64_t>> rounded;  // fp16 results, rounded in place in Numerics::kFloat16
};

struct PlannedTensor {
  std::string_view name;
  Slot slot = kNoSlot;
  Storage storage = Storage::kFloat;
  MilType dtype = MilType::kNone;
  Shape shape;
  std::int64_t count = 0;
  bool is_output = false;  // an input that is returned as it came must be copied
};

struct Plan {
  std::vector<SlotPlace> slots;
  std::vector<PlannedBuffer> buffers;
  std::vector<PlannedStep> steps;
  std::vector<PlannedTensor> inputs, states, outputs;
  std::vector<const Value*> constants;  // decoded when a run first needs the plan
  std::vector<double> node_cost;
  std::vector<AlignedBuffer> owned;
  std::int64_t arena_bytes = 0;
  std::int64_t peak_live_bytes = 0;  // the lower bound of arena_bytes
};

// Gives every buffer an offset so that no two that live at the same time overlap.
void place_buffers(Plan& plan);

}  // namespace coremlsim::mil
