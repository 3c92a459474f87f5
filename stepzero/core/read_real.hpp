#pragma once
// std::from_chars of a double, which not every library has.
#include <charconv>

namespace stepzero {

std::from_chars_result read_real(const char* first, const char* last, double& value);

}  // namespace stepzero
