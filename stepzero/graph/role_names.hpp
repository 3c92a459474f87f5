#pragma once
#include <optional>
#include <string_view>

#include "stepzero/graph/param.hpp"

namespace stepzero {

const char* to_string(Role role);  // as JSON writes it: "attention_out"
std::optional<Role> role_called(std::string_view id);
const char* words(Role role);  // for people: "attention output"

}  // namespace stepzero
