#include "mil/package/package.h"

#include <algorithm>

#include "mil/package/parser.h"

namespace coremlsim::mil {

PackageImpl::PackageImpl(const std::string& path)
    : path_(path), location_(locate_model(path)), file_(MappedFile::open(location_.model_path)), weights_(location_) {
  parse();
}

PackageImpl::PackageImpl(std::shared_ptr<const MappedFile> model, std::shared_ptr<const MappedFile> weights)
    : path_(model->path()), file_(std::move(model)), weights_(std::move(weights)) {
  parse();
}

void PackageImpl::parse() {
  try {
    model_ = parse_model(file_->text());
    resolve_blobs();
    weights_.close();
  } catch (const std::exception& error) {
    throw ModelError("[mil::package] " + file_->path() + ": " + error.what());
  }
}

void PackageImpl::resolve_blobs() {
  for (Function& function : model_.functions) {
    try {
      resolve_blobs(function);
    } catch (const ModelError& error) {
      throw ModelError("function '" + std::string(function.name) + "', " + error.what());
    }
  }
}

void PackageImpl::resolve_blobs(Function& block) {
  for (std::size_t i = 0; i < block.operations.size(); ++i) {
    Operation& op = block.operations[i];
    const auto resolve = [&](Value& value) {
      if (!value.in_blob || value.type.kind != ValueKind::kTensor) return;
      value.raw = weights_.blob(value.blob_file, value.blob_offset, value.type.tensor);
    };
    try {
      for (auto& [name, value] : op.attributes) resolve(value);
      for (Value& value : op.literals) resolve(value);
      for (Function& nested : op.blocks) resolve_blobs(nested);
    } catch (const ModelError& error) {
      throw ModelError("operation " + std::to_string(i) + " (" + std::string(op.type) + "): " + error.what());
    }
  }
}

const Function& PackageImpl::function(std::string_view name) const {
  const auto it =
      std::find_if(model_.functions.begin(), model_.functions.end(), [&](const Function& f) { return f.name == name; });
  if (it == model_.functions.end())
    throw ModelError("[mil::package] " + path_ + ": no function '" + std::string(name) + "'");
  return *it;
}

const FunctionDescription& PackageImpl::description(std::string_view name) const {
  const auto it = std::find_if(model_.descriptions.begin(), model_.descriptions.end(),
                               [&](const FunctionDescription& f) { return f.name == name; });
  if (it == model_.descriptions.end()) {
    std::string known;
    for (const FunctionDescription& f : model_.descriptions) known += (known.empty() ? "" : ", ") + f.name;
    throw ModelError("[mil::package] " + path_ + ": no function '" + std::string(name) + "'; it has: " + known);
  }
  return *it;
}

std::shared_ptr<const Package> Package::open(const std::string& path) { return std::make_shared<PackageImpl>(path); }

}  // namespace coremlsim::mil
