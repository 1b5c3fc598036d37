// The Package behind the public interface: the mapped files and the AST over them.
// Threads: immutable after open(); safe everywhere.
// Ownership: owns the mappings that the AST's views point into.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mil/engine.h"
#include "mil/package/ast.h"
#include "mil/package/weights.h"

namespace coremlsim::mil {

class PackageImpl final : public Package {
 public:
  explicit PackageImpl(const std::string& path);
  PackageImpl(std::shared_ptr<const MappedFile> model, std::shared_ptr<const MappedFile> weights);
  int specification_version() const override { return model_.specification_version; }
  const std::vector<FunctionDescription>& functions() const override { return model_.descriptions; }
  const std::string& default_function() const override { return model_.default_function; }
  bool is_multi_function() const override { return model_.multi_function; }

  const std::string& path() const { return path_; }
  const Function& function(std::string_view name) const;                // throws ModelError
  const FunctionDescription& description(std::string_view name) const;  // throws ModelError

 private:
  void parse();
  void resolve_blobs();
  void resolve_blobs(Function& block);  // and the blocks inside it
  std::string path_;
  ModelLocation location_;
  std::shared_ptr<const MappedFile> file_;
  WeightFiles weights_;
  Model model_;
};

}  // namespace coremlsim::mil
