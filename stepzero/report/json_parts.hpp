#pragma once
// What the JSON of several verbs and the page have in common.
#include <string>
#include <string_view>

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

// For a page: none of the characters that HTML knows, so that nothing in it can end its element or begin a tag.
std::string embedded(const Json& json);
// A page's template with its numbers in it.
std::string filled(std::string_view page, const std::string& data);

}  // namespace stepzero
