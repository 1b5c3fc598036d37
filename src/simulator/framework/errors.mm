#include "framework/errors.h"

NSString* const MLModelErrorDomain = @"com.apple.CoreML";
MLModelMetadataKey const MLModelDescriptionKey = @"MLModelDescriptionKey";
MLModelMetadataKey const MLModelVersionStringKey = @"MLModelVersionStringKey";
MLModelMetadataKey const MLModelAuthorKey = @"MLModelAuthorKey";
MLModelMetadataKey const MLModelLicenseKey = @"MLModelLicenseKey";
MLModelMetadataKey const MLModelCreatorDefinedKey = @"MLModelCreatorDefinedKey";

namespace coremlsim {

NSString* to_ns(const std::string& text) {
  NSString* result = [NSString stringWithUTF8String:text.c_str()];
  return result != nil ? result : @"(text that is not UTF-8)";
}

std::string to_std(NSString* text) {
  const char* bytes = [text UTF8String];
  return bytes != nullptr ? bytes : "";
}

bool fail(NSError** error, MLModelError code, const std::string& description) {
  if (error != nullptr) {
    *error = [NSError errorWithDomain:MLModelErrorDomain code:code
                             userInfo:@{NSLocalizedDescriptionKey : to_ns(description)}];
  }
  return false;
}

bool fail(NSError** error, MLModelError code, const std::string& description, const std::string& underlying) {
  if (error != nullptr) {
    NSError* inner = [NSError errorWithDomain:MLModelErrorDomain code:MLModelErrorGeneric
                                     userInfo:@{NSLocalizedDescriptionKey : to_ns(underlying)}];
    *error = [NSError errorWithDomain:MLModelErrorDomain code:code
                             userInfo:@{NSLocalizedDescriptionKey : to_ns(description), NSUnderlyingErrorKey : inner}];
  }
  return false;
}

void raise_invalid_argument(const std::string& reason) {
  @throw [NSException exceptionWithName:NSInvalidArgumentException reason:to_ns(reason) userInfo:nil];
}

}  // namespace coremlsim
