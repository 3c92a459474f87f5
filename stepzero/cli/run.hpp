#pragma once
// One command line, from its words to its exit code.
#include <string>
#include <vector>

namespace stepzero::cli {

// `words` without the program's name. Results go to standard output, errors and progress to standard error.
int run(const std::vector<std::string>& words);

}  // namespace stepzero::cli
