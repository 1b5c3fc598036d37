#import "coreml/nserror.h"

namespace kvbacking {

std::string to_string(NSString* text) {
  const char* bytes = text == nil ? nullptr : [text UTF8String];
  return bytes == nullptr ? std::string() : std::string(bytes);
}

NSString* to_nsstring(const std::string& text) {
  NSString* result = [NSString stringWithUTF8String:text.c_str()];
  if (result == nil) throw Error(ErrorCode::kInvalidArgument, "text is not valid UTF-8");
  return result;
}

Error nserror_error(ErrorCode code, const char* place, NSError* error) {
  if (error == nil) {
    return Error(code, std::string("[") + place + "] the framework returned nothing and no error",
                 {{"domain", std::string()}, {"code", std::int64_t{0}}, {"description", std::string()}});
  }
  const std::string domain = to_string([error domain]);
  const std::string text = to_string([error localizedDescription]);
  const std::int64_t number = [error code];
  return Error(code, std::string("[") + place + "] " + text + " (" + domain + " " + std::to_string(number) + ")",
               {{"domain", domain}, {"code", number}, {"description", text}});
}

Error exception_error(ErrorCode code, const char* place, NSException* exception) {
  const std::string name = to_string([exception name]);
  const std::string reason = to_string([exception reason]);
  return Error(code, std::string("[") + place + "] " + name + " was raised: " + reason,
               {{"domain", name}, {"code", std::int64_t{0}}, {"description", reason}});
}

}  // namespace kvbacking
