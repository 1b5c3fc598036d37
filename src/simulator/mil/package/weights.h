// weight.bin: checked access to its records.
// Threads: immutable; safe everywhere.
// Ownership: keeps the mapping alive; spans point into it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mil/package/manifest.h"
#include "mil/package/mapped_file.h"
#include "mil/package/types.h"

namespace coremlsim::mil {

class WeightFiles {
 public:
  explicit WeightFiles(ModelLocation location) : location_(std::move(location)) {}
  // Every name stands for the same bytes, for tests and the fuzzer.
  explicit WeightFiles(std::shared_ptr<const MappedFile> bytes) : bytes_(std::move(bytes)) {}
  // The bytes of the record at `offset`; throws ModelError when the file name, the record or its type is wrong.
  std::span<const std::uint8_t> blob(std::string_view file_name, std::uint64_t offset, const TensorType& type);

 private:
  const MappedFile& file(std::string_view file_name);
  ModelLocation location_;
  std::shared_ptr<const MappedFile> bytes_;
  std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files_;
};

}  // namespace coremlsim::mil
