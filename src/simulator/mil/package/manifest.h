// Manifest.json of a .mlpackage: finds the model file.
// Threads: pure functions; safe everywhere.
// Ownership: returns values.
#pragma once

#include <string>

namespace coremlsim::mil {

struct ModelLocation {
  std::string root;          // canonical folder that no file of the model may leave
  std::string model_path;    // canonical path of model.mlmodel
  std::string model_folder;  // what "@model_path" stands for
};

// `path` is a .mlpackage folder, a folder that holds one (the simulator's own compiled copy) or a .mlmodel file.
ModelLocation locate_model(const std::string& path);

}  // namespace coremlsim::mil
