#pragma once
#include <string>

#include "stepzero/core/error.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// A resolved model as an architecture file, which has been read again and builds the same graph, drawn in the same way.
Expected<std::string> describe_as_file(const Architecture& a);

}  // namespace stepzero
