#pragma once
// The command line described for other programs, all from the same definitions: completions for shells and a manual page.
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace stepzero::cli {

struct FlagInfo {
  std::vector<std::string> names;  // "--scheme", "-o"
  std::string description;
  std::vector<std::string> values;  // that it takes, where they are known
  std::string placeholder;          // "TEXT", "" where it takes nothing
  bool file = false;                // takes a path
};

struct VerbInfo {
  std::string name;
  std::string description;
  std::string footer;
  std::vector<std::string> words;  // that may stand without a flag: models, schemes, ops
  std::string arguments;           // "MODEL"
  std::vector<FlagInfo> flags;
};

std::vector<VerbInfo> describe_verbs(const CLI::App& app);

std::string bash_completion(const std::vector<VerbInfo>& verbs);
std::string zsh_completion(const std::vector<VerbInfo>& verbs);
std::string fish_completion(const std::vector<VerbInfo>& verbs);
std::string manual_page(const CLI::App& app, const std::vector<VerbInfo>& verbs);

// Verbs `completions SHELL` and `manual`.
void declare_shell(CLI::App& app, int& exit_code);

}  // namespace stepzero::cli
