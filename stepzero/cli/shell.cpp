#include "stepzero/cli/shell.hpp"

#include <algorithm>
#include <memory>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/report/op_heads.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero::cli {

namespace {

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const Scheme& scheme : schemes()) names.emplace_back(scheme.name);
  return names;
}

std::vector<std::string> words_of(const std::string& argument) {
  std::vector<std::string> names;
  if (argument == "MODEL") {
    for (const Preset& preset : presets()) names.emplace_back(preset.name);
  } else if (argument == "NAME") {
    names = scheme_names();
  } else if (argument == "OP") {
    for (const OpHead& head : op_heads()) names.insert(names.end(), head.kinds.begin(), head.kinds.end());
  }
  return names;
}

// CLI11 writes a set of choices as TEXT:{next,same}.
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{'), end = type.find('}');
  std::vector<std::string> values;
  if (begin == std::string::npos || end == std::string::npos) return values;
  for (const std::string& value : CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',')) values.push_back(value);
  return values;
}

FlagInfo describe_flag(const CLI::Option& option) {
  FlagInfo flag;
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  flag.description = option.get_description();
  const bool takes = option.get_items_expected_max() > 0;
  const auto called = [&](const char* name) { return std::ranges::find(flag.names, name) != flag.names.end(); };
  flag.values = called("--scheme") || called("--compare-schemes") ? scheme_names() : choices_of(option);
  flag.file = takes && flag.values.empty() &&
              (called("--csv") || called("--markdown") || called("--output") || called("-o") || called("--weights") || called("--tokens"));
  if (takes) flag.placeholder = flag.file ? "FILE" : option.get_type_name().substr(0, option.get_type_name().find_first_of(":{ "));
  return flag;
}

int print_completions(const std::string& shell, const CLI::App& app) {
  const auto verbs = describe_verbs(app);
  return print(shell == "bash" ? bash_completion(verbs) : shell == "zsh" ? zsh_completion(verbs) : fish_completion(verbs));
}

}  // namespace

std::vector<VerbInfo> describe_verbs(const CLI::App& app) {
  std::vector<VerbInfo> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    VerbInfo info{verb->get_name(), verb->get_description(), verb->get_footer(), {}, "", {}};
    for (const CLI::Option* option : verb->get_options()) {
      if (!option->nonpositional()) {
        const std::string name = option->get_name(true);
        info.arguments += fmt::format("{}{}", info.arguments.empty() ? "" : " ", option->get_required() ? name : "[" + name + "]");
        for (const std::string& word : words_of(name)) info.words.push_back(word);
        for (const std::string& word : choices_of(*option)) info.words.push_back(word);
      } else {
        info.flags.push_back(describe_flag(*option));
      }
    }
    verbs.push_back(std::move(info));
  }
  return verbs;
}

void declare_shell(CLI::App& app, int& exit_code) {
  auto shell = std::make_shared<std::string>();
  auto* completions = app.add_subcommand("completions", "completions for a shell, on standard output");
  completions->add_option("SHELL", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completions->footer(
      "Examples:\n  stepzero completions bash > ~/.local/share/bash-completion/completions/stepzero\n"
      "  stepzero completions fish > ~/.config/fish/completions/stepzero.fish\n");
  completions->callback([shell, &app, &exit_code] { exit_code = print_completions(*shell, app); });
  auto* manual = app.add_subcommand("manual", "the manual page, on standard output");
  manual->footer("Examples:\n  stepzero manual | man -l -\n  stepzero manual > stepzero.1\n");
  manual->callback([&app, &exit_code] { exit_code = print(manual_page(app, describe_verbs(app))); });
}

}  // namespace stepzero::cli
