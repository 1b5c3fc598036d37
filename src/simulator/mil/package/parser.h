// Reads model.mlmodel into the AST.
// Threads: pure functions; safe everywhere.
// Ownership: the result's views point into `bytes`.
#pragma once

#include <string_view>

#include "mil/package/ast.h"
#include "mil/package/proto.h"

namespace coremlsim::mil {

Model parse_model(std::string_view bytes);            // throws ModelError or protozero::exception
void parse_description(Proto message, Model& model);  // ModelDescription
Function parse_function(std::string_view name, Proto message);

}  // namespace coremlsim::mil
