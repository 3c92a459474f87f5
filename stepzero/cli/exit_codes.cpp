#include "stepzero/cli/exit_codes.hpp"

#include <array>

#include <fmt/format.h>

namespace stepzero::cli {

std::span<const ExitCode> exit_codes() {
  static constexpr std::array<ExitCode, 7> list = {{
      {Exit::fine, "fine"},
      {Exit::findings, "findings (compare, diff, claims, audit, coord, --fail-on)"},
      {Exit::usage, "usage or file"},
      {Exit::numerical, "a number that is not finite (the node is named)"},
      {Exit::bug, "a bug"},
      {Exit::busy, "another process writes the same file"},
      {Exit::interrupted, "interrupted"},
  }};
  return list;
}

std::string exit_codes_text() {
  std::string out;
  for (const ExitCode& e : exit_codes()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", static_cast<int>(e.code), e.meaning);
  return out;
}

}  // namespace stepzero::cli
