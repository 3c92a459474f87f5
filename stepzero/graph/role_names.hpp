#pragma once
#include "stepzero/graph/param.hpp"

namespace stepzero {

const char* to_string(Role role);  // as JSON writes it: "attention_out"
const char* words(Role role);      // for people: "attention output"

}  // namespace stepzero
