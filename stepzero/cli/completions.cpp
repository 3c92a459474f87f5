#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/shell.hpp"

namespace stepzero::cli {

namespace {

// In single quotes for a shell; descriptions are ours, but may hold any punctuation.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> names_of(const VerbInfo& verb) {
  std::vector<std::string> names;
  for (const FlagInfo& flag : verb.flags) names.insert(names.end(), flag.names.begin(), flag.names.end());
  return names;
}

std::vector<std::string> names_of(const std::vector<VerbInfo>& verbs) {
  std::vector<std::string> names;
  for (const VerbInfo& verb : verbs) names.push_back(verb.name);
  return names;
}

// For zsh's _arguments: brackets and colons mean something there.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '[' || c == ']' || c == ':' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  return out;
}

std::string zsh_argument(const FlagInfo& flag) {
  if (!flag.values.empty()) return fmt::format(":value:({})", fmt::join(flag.values, " "));
  if (flag.file) return ":file:_files";
  return flag.placeholder.empty() ? "" : ":value:";
}

}  // namespace

std::string bash_completion(const std::vector<VerbInfo>& verbs) {
  std::string out = fmt::format(
      "# bash completion for stepzero, made by `stepzero completions bash`\n_stepzero() {{\n  local cur=${{COMP_WORDS[COMP_CWORD]}} "
      "prev=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=\n  if [ \"$COMP_CWORD\" -eq 1 ]; then\n    mapfile -t COMPREPLY < "
      "<(compgen -W "
      "\"{} --help --version\" -- \"$cur\")\n    return\n  fi\n  case \"$verb $prev\" in\n",
      fmt::join(names_of(verbs), " "));
  for (const VerbInfo& verb : verbs) {
    for (const FlagInfo& flag : verb.flags) {
      if (flag.placeholder.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : flag.names) patterns.push_back(fmt::format("\"{} {}\"", verb.name, name));
      const std::string reply = flag.file
                                    ? "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")"
                                    : fmt::format("mapfile -t COMPREPLY < <(compgen -W \"{}\" -- \"$cur\")", fmt::join(flag.values, " "));
      out += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), reply);
    }
  }
  out += "  esac\n  case \"$verb\" in\n";
  for (const VerbInfo& verb : verbs)
    out += fmt::format("    {}) if [[ $cur == -* ]]; then words=\"{}\"; else words=\"{}\"; fi ;;\n", verb.name,
                       fmt::join(names_of(verb), " "), fmt::join(verb.words, " "));
  return out +
         "  esac\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\"; [[ $cur == -* ]] || compgen -f -- \"$cur\")\n}\n"
         "complete -o filenames -F _stepzero stepzero\n";
}

std::string zsh_completion(const std::vector<VerbInfo>& verbs) {
  std::string out = "#compdef stepzero\n# made by `stepzero completions zsh`\n_stepzero() {\n  local -a verbs\n  verbs=(\n";
  for (const VerbInfo& verb : verbs) out += fmt::format("    {}\n", quoted(verb.name + ":" + verb.description));
  out +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\n  fi\n  local verb=$words[2]\n  shift words\n  (( "
      "CURRENT-- ))\n"
      "  case $verb in\n";
  for (const VerbInfo& verb : verbs) {
    out += fmt::format("    {})\n      _arguments", verb.name);
    for (const FlagInfo& flag : verb.flags) {
      for (const std::string& name : flag.names)
        out += fmt::format(" \\\n        {}", quoted(fmt::format("*{}[{}]{}", name, zsh_text(flag.description), zsh_argument(flag))));
    }
    if (!verb.arguments.empty())
      out += fmt::format(" \\\n        {}", quoted(fmt::format("*:{}:{{_alternative 'words:word:({})' 'files:file:_files'}}",
                                                               zsh_text(verb.arguments), fmt::join(verb.words, " "))));
    out += "\n      ;;\n";
  }
  return out + "  esac\n}\n_stepzero \"$@\"\n";
}

std::string fish_completion(const std::vector<VerbInfo>& verbs) {
  std::string out = "# fish completion for stepzero, made by `stepzero completions fish`\n";
  for (const VerbInfo& verb : verbs)
    out += fmt::format("complete -c stepzero -n __fish_use_subcommand -f -a {} -d {}\n", verb.name, quoted(verb.description));
  for (const VerbInfo& verb : verbs) {
    const std::string seen = fmt::format("complete -c stepzero -n '__fish_seen_subcommand_from {}'", verb.name);
    if (!verb.words.empty()) out += fmt::format("{} -a {}\n", seen, quoted(fmt::format("{}", fmt::join(verb.words, " "))));
    for (const FlagInfo& flag : verb.flags) {
      std::string line = seen;
      for (const std::string& name : flag.names) line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!flag.placeholder.empty()) line += flag.file ? " -r -F" : " -x";
      if (!flag.values.empty()) line += " -a " + quoted(fmt::format("{}", fmt::join(flag.values, " ")));
      out += line + " -d " + quoted(flag.description) + "\n";
    }
  }
  return out;
}

}  // namespace stepzero::cli
