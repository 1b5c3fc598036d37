#include "mil/package/manifest.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "mil/engine.h"
#include "mil/package/mapped_file.h"

namespace coremlsim::mil {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMaxManifestBytes = 1 << 20;

const Json& member(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end()) throw ModelError(where + ": no \"" + key + "\"");
  return *it;
}

std::string string_member(const Json& object, const char* key, const std::string& where) {
  const Json& value = member(object, key, where);
  if (!value.is_string()) throw ModelError(where + ": \"" + key + "\" is not a string");
  return value.get<std::string>();
}

// The path of the root model, relative to Data/.
std::string root_model_path(const MappedFile& file) {
  const std::string where = "[mil::manifest] " + file.path();
  if (file.bytes().size() > kMaxManifestBytes) throw ModelError(where + ": larger than 1 MiB");
  const Json manifest = Json::parse(file.text(), nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) throw ModelError(where + ": not a JSON object (truncated or not a manifest)");
  const std::string version = string_member(manifest, "fileFormatVersion", where);
  if (version.rfind("1.", 0) != 0) throw ModelError(where + ": fileFormatVersion " + version + ", expected 1.x");
  const std::string root = string_member(manifest, "rootModelIdentifier", where);
  const Json& entries = member(manifest, "itemInfoEntries", where);
  if (!entries.is_object()) throw ModelError(where + ": \"itemInfoEntries\" is not an object");
  const auto entry = entries.find(root);
  if (entry == entries.end() || !entry->is_object()) {
    throw ModelError(where + ": rootModelIdentifier " + root + " names no entry of itemInfoEntries");
  }
  return string_member(*entry, "path", where);
}

}  // namespace

ModelLocation locate_model(const std::string& path) {
  std::error_code error;
  const fs::path canonical = fs::canonical(path, error);
  if (error) throw ModelError("[mil::open] " + path + ": " + error.message());
  if (!fs::is_directory(canonical)) {
    const std::string folder = canonical.parent_path().string();
    return {folder, canonical.string(), folder};
  }
  const std::string root = canonical.string();
  if (!fs::exists(canonical / "Manifest.json")) {
    throw ModelError("[mil::open] " + path + ": no Manifest.json" +
                     (fs::exists(canonical / "coremldata.bin")
                          ? "; this model was compiled by Core ML, load the .mlpackage it came from"
                          : "; not a .mlpackage"));
  }
  const auto manifest = MappedFile::open(resolve_inside(root, root, "Manifest.json"));
  const std::string model = resolve_inside(root, (canonical / "Data").string(), root_model_path(*manifest));
  return {root, model, fs::path(model).parent_path().string()};
}

}  // namespace coremlsim::mil
