// hide_api: classes and selectors that are newer than a macOS version become absent, as on that macOS.
// Threads: hide_api runs while nobody else calls the framework. Ownership: original implementations are kept for ever.
#import <CoreML/CoreML.h>
#include <objc/runtime.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "framework/api_gate.h"
#include "framework/control.h"
#include "framework/errors.h"

namespace coremlsim {
namespace {

struct GatedClass {
  const char* name;
  double introduced;
};
constexpr GatedClass kClasses[] = {
    {"MLComputePlan", 14.4},
    {"MLComputePlanCost", 14.4},
    {"MLComputePlanDeviceUsage", 14.4},
    {"MLModelStructure", 14.4},
    {"MLModelStructureProgram", 14.4},
    {"MLModelStructureProgramFunction", 14.4},
    {"MLModelStructureProgramBlock", 14.4},
    {"MLModelStructureProgramOperation", 14.4},
    {"MLModelStructureProgramArgument", 14.4},
    {"MLModelStructureProgramBinding", 14.4},
    {"MLModelStructureProgramNamedValueType", 14.4},
    {"MLModelStructureNeuralNetwork", 14.4},
    {"MLModelStructureNeuralNetworkLayer", 14.4},
    {"MLOptimizationHints", 14.4},
    {"MLState", 15},
    {"MLStateConstraint", 15},
};

struct GatedSelector {
  const char* class_name;
  const char* selector;
  bool is_class_method;
  double introduced;
};
constexpr GatedSelector kSelectors[] = {
    {"MLModelConfiguration", "optimizationHints", false, 14.4},
    {"MLModelConfiguration", "setOptimizationHints:", false, 14.4},
    {"MLModelConfiguration", "functionName", false, 15},
    {"MLModelConfiguration", "setFunctionName:", false, 15},
    {"MLOptimizationHints", "specializationStrategy", false, 15},
    {"MLOptimizationHints", "setSpecializationStrategy:", false, 15},
    {"MLFeatureDescription", "stateConstraint", false, 15},
    {"MLModelDescription", "stateDescriptionsByName", false, 15},
    {"MLMultiArray", "initWithShape:dataType:strides:", false, 15},
    {"MLMultiArray", "transferToMultiArray:", false, 15},
    {"MLModel", "newState", false, 15},
    {"MLModel", "predictionFromFeatures:usingState:error:", false, 15},
    {"MLModel", "predictionFromFeatures:usingState:options:error:", false, 15},
    {"MLModel", "predictionFromFeatures:usingState:options:completionHandler:", false, 15},
    {"MLModelAsset", "modelAssetWithURL:error:", true, 15},
    {"MLModelAsset", "modelDescriptionWithCompletionHandler:", false, 15},
    {"MLModelAsset", "modelDescriptionOfFunctionNamed:completionHandler:", false, 15},
    {"MLModelAsset", "functionNamesWithCompletionHandler:", false, 15},
};

std::atomic<double> newest{0};  // 0: nothing is hidden

bool is_class_hidden(const char* name) {
  for (const GatedClass& gated : kClasses) {
    if (std::string(gated.name) == name) {
      return !api_available(gated.introduced);
    }
  }
  return false;
}

// The runtime's one function type stands for all; the way there leads through void*.
template <class Function>
IMP as_imp(Function function) {
  return reinterpret_cast<IMP>(reinterpret_cast<void*>(function));
}
void send_to_nobody(id self, SEL selector) { [self doesNotRecognizeSelector:selector]; }

Method method_of(const GatedSelector& gated) {
  Class cls = objc_lookUpClass(gated.class_name);
  SEL selector = sel_registerName(gated.selector);
  return gated.is_class_method ? class_getClassMethod(cls, selector) : class_getInstanceMethod(cls, selector);
}

}  // namespace

bool is_selector_hidden(Class cls, SEL selector, bool is_class_method) {
  const std::string name = sel_getName(selector);
  for (const GatedSelector& gated : kSelectors) {
    if (gated.is_class_method == is_class_method && name == gated.selector &&
        std::string(class_getName(cls)) == gated.class_name) {
      return !api_available(gated.introduced);
    }
  }
  return false;
}

bool api_available(double introduced) noexcept {
  const double limit = newest;
  return limit == 0 || introduced <= limit;
}

std::string hidden_api() {
  @autoreleasepool {
    return newest == 0 ? "" : to_std([[NSNumber numberWithDouble:newest] stringValue]);
  }
}

void hide_api(const std::string& newest_version) {
  double limit = 0;
  if (!newest_version.empty()) {
    char* end = nullptr;
    limit = std::strtod(newest_version.c_str(), &end);
    if (*end != '\0' || limit < 14 || limit > 100) {
      throw std::invalid_argument("hide_api: expected a macOS version from 14, e.g. \"14\" or \"14.4\", got \"" +
                                  newest_version + "\"");
    }
  }
  newest = limit;
  static auto* originals = new std::unordered_map<const GatedSelector*, IMP>;
  for (const GatedSelector& gated : kSelectors) {
    // A first message gives the class its own dispatch table; without it method_setImplementation would write into the
    // one that all classes share until then.
    [objc_lookUpClass(gated.class_name) class];
    Method method = method_of(gated);
    if (!originals->contains(&gated)) {
      originals->emplace(&gated, method_getImplementation(method));
    }
    IMP wanted = api_available(gated.introduced) ? originals->at(&gated) : as_imp(send_to_nobody);
    if (method_getImplementation(method) != wanted) {
      method_setImplementation(method, wanted);
    }
  }
}

}  // namespace coremlsim

// A plain message needs this library's selectors, which are registered when it is loaded: after Foundation, whose own
// +load methods (GNUstep 1.31) ask for classes already.
static const char* text_of(NSString* name) {
  if (name == nil) return nullptr;
  const SEL selector = sel_registerName("UTF8String");
  const IMP implementation = class_getMethodImplementation(object_getClass(name), selector);
  return reinterpret_cast<const char* (*)(id, SEL)>(reinterpret_cast<void*>(implementation))(name, selector);
}

// Stands before GNUstep's function of this name in every lookup, as this library is loaded before that one.
Class NSClassFromString(NSString* name) {
  const char* text = text_of(name);
  if (text != nullptr && std::strncmp(text, "ML", 2) == 0) {
    coremlsim::environment_error();  // the environment may hide what is asked for
  }
  return text == nullptr || coremlsim::is_class_hidden(text) ? Nil : objc_lookUpClass(text);
}
