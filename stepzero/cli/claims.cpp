#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/report.hpp"
#include "stepzero/cli/command.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/core/text.hpp"

namespace stepzero::cli {

namespace {

struct ClaimsFlags {
  std::string name, markdown;
  std::uint64_t seed = 0;
  int threads = 0;
  std::vector<std::string> set;
  bool json = false;
  bool quiet = false;
};

// "key=value" for the claim that is asked for, "claim.key=value" where all are.
Expected<claims::Settings> settings_of(const claims::Claim& claim, const ClaimsFlags& flags) {
  claims::Settings settings(flags.seed, claim.settings);
  for (const std::string& text : flags.set) {
    const std::string prefix = std::string(claim.id) + ".";
    const bool mine = text.starts_with(prefix);
    if (!mine && flags.name.empty()) continue;
    if (auto done = claims::set(claim, settings, std::string_view(text).substr(mine ? prefix.size() : 0)); !done)
      return std::unexpected(done.error());
  }
  return settings;
}

Expected<void> check_names(const ClaimsFlags& flags) {
  for (const std::string& text : flags.set) {
    if (!flags.name.empty()) continue;
    const auto dot = text.find('.');
    if (dot == std::string::npos || dot > text.find('=')) {
      return fail(fmt::format("--set {}: expected CLAIM.key=value", show(text)),
                  "for example --set pe-norm.positions=100; or name one claim");
    }
    if (auto found = claims::find(std::string_view(text).substr(0, dot)); !found) return std::unexpected(found.error());
  }
  return {};
}

Expected<std::vector<claims::Result>> run_all(const ClaimsFlags& flags) {
  std::vector<const claims::Claim*> wanted;
  if (flags.name.empty()) {
    for (const claims::Claim& claim : claims::all()) wanted.push_back(&claim);
  } else {
    const auto found = claims::find(flags.name);
    if (!found) return std::unexpected(found.error());
    wanted.push_back(*found);
  }
  if (auto done = check_names(flags); !done) return std::unexpected(done.error());
  std::vector<claims::Settings> settings;
  for (const auto* claim : wanted) {
    auto one = settings_of(*claim, flags);
    if (!one) return std::unexpected(one.error());
    settings.push_back(std::move(*one));
  }
  Progress progress("claims", flags.quiet);
  std::vector<claims::Result> results;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    progress.show(static_cast<double>(i) / static_cast<double>(wanted.size()), std::string(wanted[i]->id));
    results.push_back({wanted[i], wanted[i]->run(settings[i])});
  }
  return results;
}

int run(const ClaimsFlags& flags) {
  set_threads(flags.threads);
  const auto results = run_all(flags);
  if (!results) return complain(results.error());
  int code = Exit::fine;
  if (!flags.markdown.empty()) {
    if (auto done = claims::write_markdown(*results, flags.markdown); !done) return complain(done.error());
  } else {
    const std::size_t width = look_of_output().width;
    const std::string text = flags.json           ? claims::to_json(*results) + "\n"
                             : flags.name.empty() ? claims::table(*results, width)
                                                  : claims::page(results->front(), width);
    code = print(text);
  }
  if (code != Exit::fine) return code;
  for (const claims::Result& r : *results) {
    if (!r.as_recorded()) code = Exit::findings;
  }
  return code;
}

}  // namespace

void declare_claims(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("claims", "the statements of the source documents, each an experiment with a verdict");
  auto flags = std::make_shared<ClaimsFlags>();
  verb->add_option("NAME", flags->name, "one claim, with its reasons and a plot");
  verb->add_option("--seed", flags->seed, "of all draws")->check(check_seed)->capture_default_str();
  verb->add_option("--set", flags->set,
                   "a size of the experiment or a constant of the statement: key=value, or CLAIM.key=value; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--threads", flags->threads, "threads to use [all cores]")->check(CLI::Range(1, 1000000));
  verb->add_flag("--json", flags->json, "the result as JSON (stepzero.claims/1)");
  verb->add_option("--markdown", flags->markdown, "write claims.md and its figures into this directory");
  verb->add_flag("--quiet", flags->quiet, "no progress");
  verb->footer(
      "Exit code 1 when a verdict differs from the recorded one.\n\nExamples:\n  stepzero claims\n  stepzero claims relu-half\n  "
      "stepzero claims temperature --set power=0.25\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
