// What a caller expects of a model's outputs (KVContract in Python). A plain value.
// Threads: immutable once built. Ownership: owns its strings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvbacking/layout.h"

namespace kvbacking {

enum class TailRule { kZero, kAny };  // rows beyond `live`: bitwise zero (Whisper) or anything (LLM)

struct ContractOutput {
  std::string name;
  DType dtype = DType::kFloat16;
  std::vector<std::int64_t> shape;
};

struct Contract {
  std::vector<ContractOutput> outputs;  // these get backings
  std::int64_t live = 0;                // live elements along `axis`
  std::int64_t axis = 0;                // normalised: never negative
  TailRule tail = TailRule::kZero;
  double max_abs = 0.0, max_rel = 0.0;    // parity tolerance
  std::vector<std::string> unbacked;      // expected, copied and returned, not proposed
  std::vector<std::string> sensitive_to;  // inputs a change of which must change the outputs (resolved: never "all")
  bool allow_all_zero = false;
};

}  // namespace kvbacking
