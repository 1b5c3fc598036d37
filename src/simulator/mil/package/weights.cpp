#include "mil/package/weights.h"

#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace coremlsim::mil {
namespace {

constexpr std::string_view kModelPath = "@model_path/";
constexpr std::uint64_t kHeaderBytes = 64;
constexpr std::uint32_t kFileVersion = 2;
constexpr std::uint32_t kSentinel = 0xDEADBEEF;

struct Record {
  std::uint32_t sentinel, dtype;
  std::uint64_t byte_count, data_offset, padding_bits;
  std::uint8_t reserved[32];
};
static_assert(sizeof(Record) == 64);

// The numbers that weight.bin uses for element types, which are not those of the protobuf.
MilType blob_type(std::uint32_t code) {
  constexpr MilType kTypes[] = {MilType::kNone,  MilType::kFloat16,  MilType::kFloat32, MilType::kUInt8,
                                MilType::kInt8,  MilType::kBFloat16, MilType::kInt16,   MilType::kUInt16,
                                MilType::kInt4,  MilType::kUInt1,    MilType::kUInt2,   MilType::kUInt4,
                                MilType::kUInt3, MilType::kUInt6,    MilType::kInt32,   MilType::kUInt32};
  return code < std::size(kTypes) ? kTypes[code] : MilType::kNone;
}

}  // namespace

// Within the file's size as it was mapped; a file that was cut since is an error here, not a signal.
void WeightFiles::read(const File& file, std::uint64_t offset, void* to, std::size_t count) {
  if (file.descriptor.get() < 0) {
    std::memcpy(to, file.map->bytes().data() + offset, count);
    return;
  }
  const ssize_t got = pread(file.descriptor.get(), to, count, static_cast<off_t>(offset));
  if (got != static_cast<ssize_t>(count)) {
    throw ModelError(file.map->path() + ": cannot read " + std::to_string(count) + " bytes at offset " +
                     std::to_string(offset) + (got < 0 ? std::string(": ") + std::strerror(errno) : " (truncated?)"));
  }
}

const WeightFiles::File& WeightFiles::file(std::string_view file_name) {
  if (const auto it = files_.find(file_name); it != files_.end()) return it->second;
  if (!file_name.starts_with(kModelPath)) {
    throw ModelError("weight file '" + std::string(file_name) + "' does not start with @model_path/");
  }
  File opened;
  opened.map = bytes_ ? bytes_
                      : MappedFile::open(
                            resolve_inside(location_.root, location_.model_folder, file_name.substr(kModelPath.size())),
                            &opened.descriptor);
  const std::string& path = opened.map->path();
  std::uint32_t header[2];
  if (opened.map->bytes().size() < kHeaderBytes) throw ModelError(path + ": shorter than its 64-byte header");
  read(opened, 0, header, sizeof header);
  if (header[1] != kFileVersion) {
    throw ModelError(path + ": storage version " + std::to_string(header[1]) + ", expected 2");
  }
  return files_.emplace(file_name, std::move(opened)).first->second;
}

void WeightFiles::close() noexcept {
  for (auto& [name, file] : files_) file.descriptor = Descriptor();
}

std::span<const std::uint8_t> WeightFiles::blob(std::string_view file_name, std::uint64_t offset,
                                                const TensorType& type) {
  const File& opened = file(file_name);
  const MappedFile& weights = *opened.map;
  const std::span<const std::uint8_t> bytes = weights.bytes();
  const auto where = [&] { return weights.path() + " at offset " + std::to_string(offset); };
  if (offset % 64 != 0) throw ModelError(where() + ": offset is not a multiple of 64");
  if (offset > bytes.size() || bytes.size() - offset < sizeof(Record)) {
    throw ModelError(where() + ": the record lies beyond the file's " + std::to_string(bytes.size()) + " bytes");
  }
  Record record;
  read(opened, offset, &record, sizeof record);
  if (record.sentinel != kSentinel) throw ModelError(where() + ": wrong magic number");
  const MilType stored = blob_type(record.dtype);
  // A bool tensor is stored as bytes.
  if (stored != type.dtype && !(type.dtype == MilType::kBool && stored == MilType::kUInt8)) {
    throw ModelError(where() + ": holds " + type_name(stored) + ", the program expects " + type_name(type.dtype));
  }
  const std::int64_t need = packed_byte_count(type.dtype, element_count(type.dims, where));
  if (record.byte_count != static_cast<std::uint64_t>(need)) {
    throw ModelError(where() + ": holds " + std::to_string(record.byte_count) + " bytes, " + type_name(type.dtype) +
                     describe(type.dims) + " needs " + std::to_string(need));
  }
  if (record.data_offset % 64 != 0 || record.data_offset > bytes.size() ||
      bytes.size() - record.data_offset < record.byte_count) {
    throw ModelError(where() + ": " + std::to_string(record.byte_count) + " bytes at data offset " +
                     std::to_string(record.data_offset) + " do not lie in the file's " + std::to_string(bytes.size()) +
                     " bytes (truncated?)");
  }
  return bytes.subspan(record.data_offset, record.byte_count);
}

}  // namespace coremlsim::mil
