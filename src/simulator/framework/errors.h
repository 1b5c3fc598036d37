// NSErrors and NSExceptions of the simulated framework.
// Threads: any, inside an autorelease pool. Ownership: results are autoreleased.
#pragma once

#import <CoreML/CoreML.h>

#include <string>

namespace coremlsim {

NSString* to_ns(const std::string& text);
std::string to_std(NSString* text);

// Stores an error of MLModelErrorDomain (when the caller wants one) and returns false.
bool fail(NSError** error, MLModelError code, const std::string& description);
// The same with an underlying error of the same domain, code 0, as the real framework nests them.
bool fail(NSError** error, MLModelError code, const std::string& description, const std::string& underlying);

[[noreturn]] void raise_invalid_argument(const std::string& reason);

}  // namespace coremlsim

// NSSecureCoding is declared because Apple declares it; the simulator archives nothing.
#define CORE_ML_SIMULATOR_NO_CODING                                                \
  +(BOOL)supportsSecureCoding {                                                    \
    return NO;                                                                     \
  }                                                                                \
  -(void)encodeWithCoder : (NSCoder*)coder {                                       \
    (void)coder;                                                                   \
    coremlsim::raise_invalid_argument("the simulator archives no Core ML object"); \
  }                                                                                \
  -(instancetype)initWithCoder : (NSCoder*)coder {                                 \
    (void)coder;                                                                   \
    [self release];                                                                \
    coremlsim::raise_invalid_argument("the simulator archives no Core ML object"); \
  }
