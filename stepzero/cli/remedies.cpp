#include "stepzero/cli/remedies.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/theory/predict_long.hpp"

namespace stepzero::cli {

namespace {

// Where the result goes is not part of what is asked.
bool is_output(std::string_view flag) {
  constexpr auto outputs = std::to_array<std::string_view>(
      {"--json", "--csv", "--markdown", "--fail-on", "--full", "--quiet", "--output", "--html", "--no-remedies", "--threads"});
  return std::ranges::find(outputs, flag) != outputs.end();
}

std::string_view key_of(std::string_view assignment) { return assignment.substr(0, assignment.find('=')); }

// What was set before, less what the change sets anew.
std::vector<std::string> set_with(const std::vector<std::string>& set, const Change& change) {
  std::vector<std::string> out;
  for (const std::string& s : set) {
    const bool anew = std::ranges::any_of(change.set, [&](const std::string& c) { return key_of(c) == key_of(s); });
    if (!anew) out.push_back(s);
  }
  out.insert(out.end(), change.set.begin(), change.set.end());
  return out;
}

CommonFlags with(const CommonFlags& flags, const Change& change) {
  CommonFlags out = flags;
  out.quiet = true;
  if (!change.scheme.empty()) out.scheme = change.scheme;
  out.set = set_with(flags.set, change);
  return out;
}

constexpr Index few_tokens = 128;
constexpr double little_effort = 0.1;

// Whether the input may be cut: drawn tokens of one stack.
bool can_be_shorter(const CommonFlags& flags) {
  const bool drawn = flags.tokens == "zipf" || flags.tokens == "distinct" || flags.tokens == "equal";
  return drawn && flags.pixels.empty() && flags.encoder_tokens.empty();
}

bool quicker(const CommonFlags& flags, const PredictOptions& options) {
  return options.effort > little_effort || (can_be_shorter(flags) && (flags.seq_len > few_tokens || flags.batch > 1));
}

Expected<Signal> predict_with(const CommonFlags& flags, const PredictOptions& options, const Change& change, bool quick) {
  CommonFlags changed = with(flags, change);
  if (quick && can_be_shorter(changed)) {
    changed.seq_len = changed.seq_len == 0 ? 0 : std::min(changed.seq_len, few_tokens);
    changed.batch = 1;
  }
  auto setup = prepare(changed);
  if (!setup) return std::unexpected(setup.error());
  PredictOptions how = options;
  if (quick) how.effort = std::min(how.effort, little_effort);
  return predict_any(setup->graph, setup->architecture, setup->batch, *setup->scheme, how);
}

}  // namespace

std::string shell_word(const std::string& word) {
  const std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command_with(const CLI::App& verb, const CommonFlags& flags, const Change& change) {
  std::string out = "stepzero " + verb.get_name() + " " + shell_word(flags.model);
  const auto give = [&](const std::string& name, const std::string& value) { out += " " + name + " " + shell_word(value); };
  for (const CLI::Option* option : verb.get_options()) {
    if (option->count() == 0 || option->get_lnames().empty()) continue;
    const std::string name = "--" + option->get_lnames().front();
    if (is_output(name) || name == "--scheme" || name == "--set") continue;
    if (option->get_expected_max() == 0)
      out += " " + name;
    else if (const char between = option->get_delimiter(); between != '\0')
      give(name, fmt::format("{}", fmt::join(option->results(), std::string(1, between))));
    else
      for (const std::string& value : option->results()) give(name, value);
  }
  for (const std::string& s : set_with(flags.set, change)) give("--set", s);
  const std::string scheme = change.scheme.empty() ? flags.scheme : change.scheme;
  if (scheme != CommonFlags{}.scheme || change.scheme == scheme) give("--scheme", scheme);
  return out;
}

void add_remedies(Signal& signal, const CommonFlags& flags, bool notes, const PredictOptions& options) {
  const Severity least = notes ? Severity::note : Severity::warning;
  if (signal.scheme == "weights" || flags.verb == nullptr) return;
  Progress progress("trying remedies", flags.quiet);
  const Trials trials{[&](const Change& change, bool quick) {
                        progress.show(0, change.flags());
                        return predict_with(flags, options, change, quick);
                      },
                      [&](const Change& change) { return command_with(*flags.verb, flags, change); }, quicker(flags, options)};
  find_remedies(signal, trials, least, notes ? 2 : 1);  // the first that works; two where everything is asked for
}

}  // namespace stepzero::cli
