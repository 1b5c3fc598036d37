// Writes small real packages (protobuf and manifest) for the simulator's tests, without Python.
// Threads: any. Ownership: TemporaryFolder removes what was written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace kvb_test {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

struct PackageOptions {
  std::vector<std::int64_t> shape = {2, 3, 8};
  int output_type = 65552;                            // of the descriptions: Float16; 65568 Float32
  bool with_state = false;                            // a state "s" of the same shape: s += x, and y = s
  std::vector<std::string> functions = {"main"};      // more than one: a multi-function package
  std::vector<std::vector<std::int64_t>> enumerated;  // of the input; the outputs then have no fixed shape
};

// x -> y = x + 1, z = x * 2, all Float16 inside (with_state: y = s after the update).
std::filesystem::path write_package(const std::filesystem::path& folder, const PackageOptions& options = {});

}  // namespace kvb_test
