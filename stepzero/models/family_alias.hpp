#pragma once
// model_types that are another family under a name and defaults of their own.
#include <nlohmann/json_fwd.hpp>

namespace stepzero {

// Makes the configuration one of the family that reads it; any other is left as it is.
void read_as_known_family(nlohmann::json& config);

}  // namespace stepzero
