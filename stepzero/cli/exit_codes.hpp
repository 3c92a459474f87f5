#pragma once
// What the program ends with. One list: --help and the manual page show it, and a test holds README against it.
#include <span>
#include <string>

namespace stepzero::cli {

enum Exit : int { fine = 0, findings = 1, usage = 2, numerical = 3, bug = 70, busy = 75, interrupted = 130 };

struct ExitCode {
  Exit code;
  const char* meaning;
};
std::span<const ExitCode> exit_codes();

// "0 fine, 1 findings (...), ..."
std::string exit_codes_text();

}  // namespace stepzero::cli
