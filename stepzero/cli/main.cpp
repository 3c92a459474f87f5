#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/shell.hpp"
#include "stepzero/core/memory.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/architecture.hpp"

namespace {

using namespace stepzero;

// Nothing is half-written at any moment, so leaving at once is safe.
extern "C" void leave(int) { _exit(cli::Exit::interrupted); }

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
    return cli::complain(
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
  return cli::complain({message, hint});
}

// Threads that spin at a barrier ruin everything on a busy machine (a pass was seen to take ten times as long). libgomp
// reads how long to spin before main runs, so the verbs that compute for long start once more with less.
void spin_less(const std::vector<std::string>& words, char** argv) {
  constexpr auto long_verbs =
      std::to_array<std::string_view>({"predict", "measure", "compare", "report", "train", "claims", "audit", "coord", "transfer", "step"});
  const bool long_verb = !words.empty() && std::ranges::find(long_verbs, words.front()) != long_verbs.end();
  if (!long_verb || std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "10000", 0) == 0) (void)execv("/proc/self/exe", argv);  // where that fails, go on as we are
}

// "help VERB" is "VERB --help", "VERB --version" is "--version".
std::vector<std::string> plain_words(std::vector<std::string> words) {
  if (std::ranges::find(words, "--version") != words.end()) return {"--version"};
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  words.emplace_back("--help");
  return words;
}

int run(int argc, char** argv) {
  const std::vector<std::string> words = plain_words({argv + 1, argv + argc});
  spin_less(words, argv);
  CLI::App app("stepzero: what a transformer will do before its first training step", "stepzero");
  app.set_version_flag("--version", "stepzero " STEPZERO_VERSION);
  app.require_subcommand(1);
  app.footer("MODEL is a preset (stepzero models), a Hugging Face config.json, or a directory that holds one.\n\nExit codes: " +
             cli::exit_codes_text() +
             ".\n\nExamples:\n  stepzero predict llama-3-8b\n  stepzero report gpt2 --measure --seeds 4 -o report.html\n");
  int exit_code = cli::Exit::fine;
  cli::declare_predict(app, exit_code);
  cli::declare_measure(app, exit_code);
  cli::declare_compare(app, exit_code);
  cli::declare_report(app, exit_code, words);
  cli::declare_train(app, exit_code, words);
  cli::declare_step(app, exit_code, words);
  cli::declare_coord(app, exit_code, words);
  cli::declare_transfer(app, exit_code, words);
  cli::declare_init(app, exit_code);
  cli::declare_audit(app, exit_code);
  cli::declare_diff(app, exit_code);
  cli::declare_claims(app, exit_code);
  cli::declare_explain(app, exit_code);
  cli::declare_describe(app, exit_code);
  cli::declare_lists(app, exit_code);
  cli::declare_shell(app, exit_code);
  if (words.empty()) return cli::print(app.help());
  const auto shared = cli::shares(words.front());
  if (!shared) return cli::complain(shared.error());
  if (!*shared && !cli::speaks()) return cli::Exit::fine;  // the first does it alone
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) return cli::print("stepzero " STEPZERO_VERSION "\n");
    if (error.get_exit_code() == 0) {
      const auto verbs = app.get_subcommands();
      return cli::print(verbs.empty() ? app.help() : verbs.front()->help(app.get_name()));
    }
    return usage_error(app, error, words);
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  std::signal(SIGINT, leave);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, told as such
  try {
    return cli::finish(run(argc, argv));
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "stepzero: out of memory\n  shorten --seq-len or --batch, or make the model smaller\n");
    return cli::give_up(cli::Exit::usage);
  } catch (const std::exception& error) {
    fmt::print(stderr, "stepzero: {}\n", error.what());
    return cli::give_up(cli::Exit::bug);
  }
}
