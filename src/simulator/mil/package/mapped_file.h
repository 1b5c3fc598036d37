// A read-only memory map of one regular file, and the rule which files a package may name.
// Threads: immutable after opening; safe everywhere.
// Ownership: the object owns the mapping; views into it must not outlive it. A file that somebody truncates while it is
// mapped raises SIGBUS on access, as with every mapping.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coremlsim::mil {

// An open file, closed with this object.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const noexcept { return fd_; }

 private:
  int fd_ = -1;
};

class MappedFile {
 public:
  // Throws ModelError. `kept` receives the open file when it is given.
  static std::shared_ptr<const MappedFile> open(const std::string& path, Descriptor* kept = nullptr);
  // Bytes in memory under a name, for tests and the fuzzer.
  static std::shared_ptr<const MappedFile> from_bytes(std::string name, std::vector<std::uint8_t> bytes);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::uint8_t> bytes() const noexcept { return {data_, size_}; }
  std::string_view text() const noexcept { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::string& path() const noexcept { return path_; }

 private:
  MappedFile(std::string path, const std::uint8_t* data, std::size_t size);
  std::string path_;
  const std::uint8_t* data_;
  std::size_t size_;
  std::vector<std::uint8_t> owned_;  // instead of a mapping
};

// Joins `relative` to `folder` and follows symbolic links; throws ModelError when the name is absolute, has a ".."
// part, does not exist or ends outside `root`. Returns the canonical path.
std::string resolve_inside(const std::string& root, const std::string& folder, std::string_view relative);

}  // namespace coremlsim::mil
