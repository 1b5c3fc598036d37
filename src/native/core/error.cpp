#include "kvbacking/error.h"

namespace kvbacking {

Error::Error(ErrorCode code, std::string message, std::vector<std::pair<std::string, Detail>> details,
             std::vector<CheckFailure> failures)
    : code_(code), message_(std::move(message)), details_(std::move(details)), failures_(std::move(failures)) {}

}  // namespace kvbacking
