// Compiling a package, and the cache of compiled forms: written under a private name, then renamed into place.
#import <CoreML/CoreML.h>

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <system_error>

#import "coreml/async_wait.h"
#import "coreml/fork.h"
#import "coreml/model_impl.h"
#import "coreml/nserror.h"

namespace kvbacking {
namespace {

namespace fs = std::filesystem;

constexpr double kCompileTimeout_s = 1800.0;
constexpr const char* kPlace = "model.compile";

struct Compiled {
  RetainPtr<NSURL*> url;
  RetainPtr<NSError*> error;
};

std::string compile(const std::string& path) {
  std::shared_ptr<Answer<Compiled>> answer = std::make_shared<Answer<Compiled>>();
  [MLModel compileModelAtURL:[NSURL fileURLWithPath:to_nsstring(path)] completionHandler:^(NSURL* url, NSError* error) {
    answer->deliver({retain(url), retain(error)});
  }];
  const Compiled compiled = answer->wait(kCompileTimeout_s, kPlace);
  if (!compiled.url) throw nserror_error(ErrorCode::kModel, kPlace, compiled.error.get());
  return to_string([compiled.url.get() path]);
}

[[noreturn]] void fail(const std::string& what, const fs::path& path, const std::error_code& error) {
  throw Error(ErrorCode::kModel, "[model.compile] " + what + " " + path.string() + ": " + error.message(),
              {{"path", path.string()}, {"code", std::int64_t{error.value()}}});
}

void move_directory(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (!error) return;
  fs::copy(from, to, fs::copy_options::recursive, error);  // another file system
  if (error) {
    std::error_code ignored;
    fs::remove_all(to, ignored);
    fail("cannot write the compiled model to", to, error);
  }
  fs::remove_all(from, error);
}

// Unique in this process and among its neighbours.
std::string private_suffix() {
  static std::atomic<unsigned> count{0};
  return ".partial-" + std::to_string(getpid()) + "-" + std::to_string(count.fetch_add(1));
}

}  // namespace

TemporaryDirectory::~TemporaryDirectory() {
  if (is_forked_child()) return;  // the parent still uses it
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

CompiledModel compiled_model(const std::string& path, const LoadOptions& options, bool use_cached) {
  const fs::path source(path);
  std::error_code error;
  if (!fs::exists(source, error)) {
    throw Error(ErrorCode::kModel, "[model.load] there is no model at " + path, {{"path", path}});
  }
  const std::string extension = source.extension().string();
  if (extension == ".mlmodelc") return {path, nullptr, false};
  if (extension != ".mlpackage" && extension != ".mlmodel") {
    throw Error(ErrorCode::kModel, "[model.load] " + path + " is not a .mlpackage, .mlmodel or .mlmodelc",
                {{"path", path}});
  }
  if (options.cache_key.empty()) {
    const std::string compiled = compile(path);
    return {compiled, std::make_unique<TemporaryDirectory>(compiled), false};
  }
  const fs::path cache(options.cache_dir);
  const fs::path kept = cache / (options.cache_key + ".mlmodelc");
  if (use_cached && fs::is_directory(kept, error)) return {kept.string(), nullptr, true};
  fs::create_directories(cache, error);
  if (error) fail("cannot make the cache folder", cache, error);
  const TemporaryDirectory compiled(compile(path));
  const fs::path partial = cache / (options.cache_key + private_suffix());
  const TemporaryDirectory partial_guard(partial.string());
  move_directory(fs::path(compiled.path()), partial);
  if (!use_cached) fs::remove_all(kept, error);
  fs::rename(partial, kept, error);
  if (error && !fs::is_directory(kept)) fail("cannot put the compiled model at", kept, error);
  return {kept.string(), nullptr, false};  // where another process was first, its copy
}

}  // namespace kvbacking
