// weight.bin: checked access to its records.
// Threads: one while the package is opened.
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
  // The bytes of the record at `offset`; throws ModelError when the file name, the record or its type is wrong. Touches
  // no page of the mapping: a page fault for each record's header would be most of a load.
  std::span<const std::uint8_t> blob(std::string_view file_name, std::uint64_t offset, const TensorType& type);
  // No blob() will follow: closes the files, the mappings stay.
  void close() noexcept;

 private:
  struct File {
    std::shared_ptr<const MappedFile> map;
    Descriptor descriptor;  // none for bytes in memory
  };
  const File& file(std::string_view file_name);
  static void read(const File& file, std::uint64_t offset, void* to, std::size_t count);
  ModelLocation location_;
  std::shared_ptr<const MappedFile> bytes_;
  std::map<std::string, File, std::less<>> files_;
};

}  // namespace coremlsim::mil
