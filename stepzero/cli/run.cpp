#include "stepzero/cli/run.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/shell.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero::cli {

namespace {

// "--sede" -> "--seed", "mesure" -> "measure"
std::string did_you_mean(const CLI::App& app, const std::string& wrong) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) known.push_back(verb->get_name());
  return closest(wrong, known);
}

// The verbs that know a flag: "measure, compare"
std::string known_to(const CLI::App& app, const std::string& flag) {
  std::vector<std::string> verbs;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (verb->get_option_no_throw(flag) != nullptr) verbs.push_back(verb->get_name());
  }
  return fmt::format("{}", fmt::join(verbs, ", "));
}

// "--layers" is --set layers
std::string field_hint(const CLI::App& verb, const std::string& flag, const std::string& value) {
  if (!flag.starts_with("--") || verb.get_option_no_throw("--set") == nullptr) return "";
  std::string key = flag.substr(2);
  std::ranges::replace(key, '-', '_');
  const bool field = std::ranges::any_of(fields(), [&](const Field& f) { return f.name == key; });
  return field ? fmt::format("--set {}={}", key, value.empty() || value.starts_with("-") ? "VALUE" : show(value)) : "";
}

int usage_error(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!words.empty() && verb->get_name() == words.front()) at = verb;
  }
  std::string hint = fmt::format("see stepzero {}--help", at == &app ? "" : at->get_name() + " ");
  std::string message = show(error.what());
  if (at == &app && !words.empty() && !words.front().starts_with("-")) {
    const std::string near = did_you_mean(app, words.front());
    return complain(
        {fmt::format("unknown verb \"{}\"{}", show(words.front()), near.empty() ? "" : fmt::format("; did you mean {}?", near)), hint});
  }
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      const std::string name = word.substr(0, word.find('='));
      const bool known = name.starts_with("--") && at->get_option_no_throw(name) != nullptr;
      if (std::string_view(error.what()).find(word) == std::string_view::npos || known) continue;
      message = fmt::format("unknown {} \"{}\"", word.starts_with("-") ? "flag" : at == &app ? "verb" : "argument", show(name));
      const std::string value = word.size() > name.size() ? word.substr(name.size() + 1) : i + 1 < words.size() ? words[i + 1] : "";
      if (const std::string field = field_hint(*at, name, value); !field.empty()) {
        message += fmt::format("; did you mean {}?", field);
      } else if (const std::string verbs = known_to(app, name); !verbs.empty()) {
        message += fmt::format("; {} is a flag of {}", show(name), verbs);
      } else if (const std::string near = did_you_mean(*at, name); !near.empty()) {
        message += fmt::format("; did you mean {}?", near);
      }
      break;
    }
  }
  return complain({message, hint});
}

// "help VERB" is "VERB --help", "VERB --version" is "--version".
std::vector<std::string> plain_words(std::vector<std::string> words) {
  if (std::ranges::find(words, "--version") != words.end()) return {"--version"};
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

}  // namespace

int run(const std::vector<std::string>& given) {
  const std::vector<std::string> words = plain_words(given);
  CLI::App app("stepzero: what a transformer will do before its first training step", "stepzero");
  app.set_version_flag("--version", "stepzero " STEPZERO_VERSION);
  app.require_subcommand(1);
  app.footer("MODEL is a preset (stepzero models), a Hugging Face config.json, or a directory that holds one.\n\nExit codes: " +
             exit_codes_text() +
             ".\n\nExamples:\n  stepzero predict llama-3-8b\n  stepzero report gpt2 --measure --seeds 4 -o report.html\n");
  int exit_code = Exit::fine;
  declare_predict(app, exit_code);
  declare_measure(app, exit_code);
  declare_compare(app, exit_code);
  declare_report(app, exit_code, words);
  declare_train(app, exit_code, words);
  declare_step(app, exit_code, words);
  declare_coord(app, exit_code, words);
  declare_transfer(app, exit_code, words);
  declare_solve(app, exit_code, words);
  declare_sweep(app, exit_code);
  declare_init(app, exit_code);
  declare_audit(app, exit_code);
  declare_diff(app, exit_code);
  declare_claims(app, exit_code);
  declare_explain(app, exit_code);
  declare_describe(app, exit_code);
  declare_explorer(app, exit_code);
  declare_lists(app, exit_code);
  declare_shell(app, exit_code);
  if (words.empty()) return print(app.help());
  const auto shared = shares(words.front());
  if (!shared) return complain(shared.error());
  if (!*shared && !speaks()) return Exit::fine;  // the first does it alone
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) return print("stepzero " STEPZERO_VERSION "\n");
    if (error.get_exit_code() == 0) {
      const auto verbs = app.get_subcommands();
      return print(verbs.empty() ? app.help() : verbs.front()->help(app.get_name()));
    }
    return usage_error(app, error, words);
  }
  return exit_code;
}

}  // namespace stepzero::cli
