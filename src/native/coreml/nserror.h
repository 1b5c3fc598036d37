// NSError and NSException as kvbacking::Error values: domain, code and text verbatim.
// Threads: any. Ownership: the result holds no framework object.
#pragma once

#import <Foundation/Foundation.h>

#include <string>

#include "kvbacking/error.h"

namespace kvbacking {

std::string to_string(NSString* text);           // "" for nil
NSString* to_nsstring(const std::string& text);  // autoreleased

// A nil `error` (a framework that failed without saying why) is said in so many words.
Error nserror_error(ErrorCode code, const char* place, NSError* error);
Error exception_error(ErrorCode code, const char* place, NSException* exception);

}  // namespace kvbacking
