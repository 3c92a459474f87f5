#pragma once
// Tokens to a tree.
#include "stepzero/lang/syntax.hpp"

namespace stepzero::lang {

// `file` is the number that places get.
Expected<Block> parse(const Source& source, int file);

}  // namespace stepzero::lang
