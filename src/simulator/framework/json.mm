#include "framework/json.h"

#include <cmath>
#include <stdexcept>

namespace coremlsim {

NSDictionary* parse_json_object(const std::string& text) {
  NSData* data = [NSData dataWithBytes:text.data() length:text.size()];
  NSError* error = nil;
  id object = nil;
  try {
    @try {
      object = [NSJSONSerialization JSONObjectWithData:data options:0 error:&error];
    } @catch (NSException* exception) {
      object = nil;
    }
  } catch (const std::exception&) {
    object = nil;
  }
  if (![object isKindOfClass:[NSDictionary class]]) {
    throw std::invalid_argument("not a JSON object: " + text.substr(0, 200));
  }
  return object;
}

std::string write_json(NSDictionary* object) {
  NSData* data = [NSJSONSerialization dataWithJSONObject:object options:0 error:nullptr];
  return std::string(static_cast<const char*>([data bytes]), [data length]);
}

std::string json_string(id value, const std::string& key) {
  if (![value isKindOfClass:[NSString class]]) {
    throw std::invalid_argument(key + ": expected a string");
  }
  return [static_cast<NSString*>(value) UTF8String];
}

// GNUstep reads `true` and `false` as the two boolean singletons that NSNumber hands out.
bool is_json_bool(id value) { return value == [NSNumber numberWithBool:YES] || value == [NSNumber numberWithBool:NO]; }

bool json_bool(id value, const std::string& key) {
  if (![value isKindOfClass:[NSNumber class]] || !is_json_bool(value)) {
    throw std::invalid_argument(key + ": expected true or false");
  }
  return [static_cast<NSNumber*>(value) boolValue];
}

std::int64_t json_integer(id value, const std::string& key, std::int64_t low, std::int64_t high) {
  if (![value isKindOfClass:[NSNumber class]] || is_json_bool(value)) {
    throw std::invalid_argument(key + ": expected a number");
  }
  const double number = [static_cast<NSNumber*>(value) doubleValue];
  if (std::floor(number) != number || number < static_cast<double>(low) || number > static_cast<double>(high)) {
    throw std::invalid_argument(key + ": expected a whole number from " + std::to_string(low) + " to " +
                                std::to_string(high));
  }
  return static_cast<std::int64_t>(number);
}

}  // namespace coremlsim
