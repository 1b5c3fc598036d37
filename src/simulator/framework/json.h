// JSON text to checked values, for options and faults.
// Threads: any, inside an autorelease pool. Ownership: results are autoreleased.
#pragma once

#import <Foundation/Foundation.h>

#include <cstdint>
#include <string>

namespace coremlsim {

// All throw std::invalid_argument naming the key.
NSDictionary* parse_json_object(const std::string& text);
std::string write_json(NSDictionary* object);
std::string json_string(id value, const std::string& key);
bool json_bool(id value, const std::string& key);
std::int64_t json_integer(id value, const std::string& key, std::int64_t low, std::int64_t high);
bool is_json_bool(id value);

}  // namespace coremlsim
