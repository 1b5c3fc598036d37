#include "mil/package/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "mil/engine.h"

namespace coremlsim::mil {
namespace fs = std::filesystem;
namespace {

// Whether `full`, below the canonical `root`, exists and is its own canonical name: no part is a link, a dot or empty.
bool is_plain(const std::string& root, const std::string& full) {
  if (full.size() <= root.size() + 1 || full.compare(0, root.size(), root) != 0 || full[root.size()] != '/') {
    return false;
  }
  for (std::size_t begin = root.size() + 1; begin <= full.size();) {
    const std::size_t end = std::min(full.find('/', begin), full.size());
    const std::string_view part(full.data() + begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    struct stat info{};
    if (lstat(full.substr(0, end).c_str(), &info) != 0 || S_ISLNK(info.st_mode)) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

MappedFile::MappedFile(std::string path, const std::uint8_t* data, std::size_t size)
    : path_(std::move(path)), data_(data), size_(size) {}

MappedFile::~MappedFile() {
  if (data_ && owned_.empty()) munmap(const_cast<std::uint8_t*>(data_), size_);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path, Descriptor* kept) {
  // O_NONBLOCK: a FIFO in place of the file must not hang the reader.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  Descriptor file(fd);
  if (fd < 0) throw ModelError("[mil::open] " + path + ": " + std::strerror(errno));
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    throw ModelError("[mil::open] " + path + ": not a regular file");
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int error = errno;
    if (data == MAP_FAILED) {
      throw ModelError("[mil::open] " + path + ": cannot map " + std::to_string(size) +
                       " bytes: " + std::strerror(error));
    }
  }
  if (kept != nullptr) *kept = std::move(file);
  return std::shared_ptr<const MappedFile>(new MappedFile(path, static_cast<const std::uint8_t*>(data), size));
}

std::shared_ptr<const MappedFile> MappedFile::from_bytes(std::string name, std::vector<std::uint8_t> bytes) {
  auto file = std::shared_ptr<MappedFile>(new MappedFile(std::move(name), nullptr, bytes.size()));
  file->owned_ = std::move(bytes);
  if (!file->owned_.empty()) file->data_ = file->owned_.data();
  return file;
}

std::string resolve_inside(const std::string& root, const std::string& folder, std::string_view relative) {
  const std::string name(relative);
  if (name.empty() || name.find('\0') != std::string::npos) {
    throw ModelError("[mil::open] " + root + ": empty or malformed file name in the package");
  }
  const fs::path part(name);
  if (part.is_absolute() || std::any_of(part.begin(), part.end(), [](const fs::path& p) { return p == ".."; })) {
    throw ModelError("[mil::open] " + root + ": file name '" + name + "' may not be absolute or contain '..'");
  }
  if (std::string full = folder + "/" + name; is_plain(root, full)) return full;
  std::error_code error;
  const fs::path base = fs::canonical(root, error);
  if (error) throw ModelError("[mil::open] " + root + ": " + error.message());
  const fs::path full = fs::canonical(fs::path(folder) / part, error);
  if (error) throw ModelError("[mil::open] " + root + ": file '" + name + "': " + error.message());
  const auto [end, unused] = std::mismatch(base.begin(), base.end(), full.begin(), full.end());
  if (end != base.end()) {
    throw ModelError("[mil::open] " + root + ": file '" + name + "' is a link that leaves the package (to " +
                     full.string() + ")");
  }
  return full.string();
}

}  // namespace coremlsim::mil
