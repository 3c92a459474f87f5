#pragma once
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/core/error.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// A resolved model as its canonical graph, with the laws of tensors that its family draws in ways of its own.
nlohmann::ordered_json describe_as_graph(const Architecture& a);

// A resolved model as an architecture file, which has been read again and builds the same graph, drawn in the same way.
Expected<std::string> describe_as_file(const Architecture& a);

}  // namespace stepzero
