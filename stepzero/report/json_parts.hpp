#pragma once
// What the JSON of several verbs and the page have in common.
#include <string>

#include <nlohmann/json.hpp>

#include "stepzero/models/architecture.hpp"
#include "stepzero/signal/finding.hpp"

namespace stepzero {

using Json = nlohmann::ordered_json;

Json json_number(double x);  // null where it is not finite
Json json(const Finding& f);
Json json(const Architecture& a, Index parameters);

// ASCII only: a name may hold marks that reorder or hide what a terminal shows.
std::string dump(const Json& json);

}  // namespace stepzero
