// Compiling (a checked copy in a temporary folder, with a marker) and opening compiled models.
#include <CoreML/CoreML.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "framework/control.h"
#include "framework/errors.h"
#include "framework/faults.h"
#include "framework/model.h"

namespace fs = std::filesystem;

namespace coremlsim {
namespace {

std::string path_of(NSURL* url) { return url != nil ? to_std([url path]) : ""; }

// Where the engine finds the package inside a compiled folder.
fs::path package_inside(const fs::path& compiled) {
  const fs::path single = compiled / "model.mlmodel";
  return fs::exists(single) ? single : compiled;
}

NSURL* copy_compiled(const fs::path& source, NSError** error) {
  std::string pattern = (fs::temp_directory_path() / "coreml-simulator-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    fail(error, MLModelErrorIO, "Cannot create a temporary folder for the compiled model.");
    return nil;
  }
  fs::path compiled = fs::path(pattern) / source.stem();
  compiled += ".mlmodelc";
  std::error_code problem;
  fs::create_directory(compiled, problem);
  if (!problem) {
    if (fs::is_directory(source)) {
      fs::copy(source, compiled, fs::copy_options::recursive, problem);  // links inside become copies of their target
    } else {
      fs::copy_file(source, compiled / "model.mlmodel", problem);
    }
  }
  if (!problem) {
    std::ofstream marker(compiled / kCompiledMarker);
    marker << kVersion << "\n";
    if (!marker.good()) {
      problem = std::make_error_code(std::errc::io_error);
    }
  }
  if (problem) {
    std::error_code ignored;
    fs::remove_all(pattern, ignored);
    fail(error, MLModelErrorIO, "Cannot write the compiled model: " + problem.message());
    return nil;
  }
  return [NSURL fileURLWithPath:to_ns(compiled.string())];
}

NSURL* compile(NSURL* url, NSError** error) {
  const fs::path source = path_of(url);
  std::error_code ignored;
  if (!environment_error().empty()) {
    fail(error, MLModelErrorGeneric, environment_error());
    return nil;
  }
  if (source.empty() || !fs::exists(source, ignored)) {
    fail(error, MLModelErrorIO, "A valid manifest or model does not exist at path: " + source.string());
    return nil;
  }
  if (Faults::current().fire(Fault::kCompileError)) {
    fail(error, MLModelErrorGeneric, "Failed to compile the model (simulated fault compile_error).");
    return nil;
  }
  try {
    mil::Package::open(source.string());
  } catch (const std::exception& exception) {
    fail(error, MLModelErrorGeneric, "Error reading the model to compile: " + std::string(exception.what()));
    return nil;
  }
  return copy_compiled(source, error);
}

}  // namespace

std::shared_ptr<const mil::Package> open_compiled(NSURL* url, NSError** error) {
  const fs::path path = path_of(url);
  std::error_code ignored;
  if (!environment_error().empty()) {
    fail(error, MLModelErrorGeneric, environment_error());
    return nullptr;
  }
  const Faults faults = Faults::current();
  if (faults.wants(Fault::kException) == "load") {
    faults.fired(Fault::kException);
    @throw [NSException exceptionWithName:NSInternalInconsistencyException reason:@"simulated fault exception"
                                 userInfo:nil];
  }
  if (faults.fire(Fault::kLoadError)) {
    fail(error, MLModelErrorGeneric, "Failed to load the model (simulated fault load_error).");
    return nullptr;
  }
  if (path.empty() || !fs::exists(path, ignored)) {
    fail(error, MLModelErrorIO, "The model does not exist at path: " + path.string());
    return nullptr;
  }
  if (!fs::exists(path / kCompiledMarker, ignored)) {
    fail(error, MLModelErrorGeneric,
         "Unable to load model: " + path.string() +
             ". It is not a compiled model; compile it with MLModel compileModelAtURL: first.");
    return nullptr;
  }
  try {
    return mil::Package::open(package_inside(path).string());
  } catch (const std::exception& exception) {
    fail(error, MLModelErrorGeneric, "Failed to load the model: " + std::string(exception.what()));
    return nullptr;
  }
}

const mil::FunctionDescription* find_function(const mil::Package& package, NSString* name, NSError** error) {
  const std::string wanted = name != nil ? to_std(name) : package.default_function();
  std::string known;
  for (const mil::FunctionDescription& function : package.functions()) {
    if (function.name == wanted) {
      return &function;
    }
    known += (known.empty() ? "" : ", ") + function.name;
  }
  fail(error, MLModelErrorGeneric, "The model has no function named \"" + wanted + "\". Its functions are: " + known);
  return nullptr;
}

}  // namespace coremlsim

using namespace coremlsim;

@implementation MLModel (MLModelCompilation)

+ (nullable NSURL*)compileModelAtURL:(NSURL*)modelURL error:(NSError**)error {
  return compile(modelURL, error);
}

+ (void)compileModelAtURL:(NSURL*)modelURL
        completionHandler:(void (^)(NSURL* _Nullable compiledModelURL, NSError* _Nullable error))handler {
  const Strong<NSURL*> url = modelURL;
  const auto done = Strong<id>::adopt([(id)handler copy]);
  run_async([url, done] {
    NSError* error = nil;
    NSURL* compiled = compile(url.get(), &error);
    complete<NSURL*>(done, compiled, error);
  });
}

@end
