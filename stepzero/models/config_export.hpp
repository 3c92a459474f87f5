#pragma once
// From --set back to config.json: a model written by `stepzero init` should load where others load theirs.
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace stepzero {

// Writes each "field=value" into the configuration under the family's own key; returns those it has no key for.
std::vector<std::string> express(nlohmann::ordered_json& config, const std::vector<std::string>& set);

}  // namespace stepzero
