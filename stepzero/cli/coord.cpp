#include <memory>

#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/report/coord.hpp"
#include "stepzero/schemes/transfer_rules.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero::cli {

namespace {

struct CoordFlags : CommonFlags {
  CoordRequest request;
  OptimizerFlags optimizer;
  std::string html, command;
  bool full = false;
};

int run(const CoordFlags& flags) {
  CoordRequest r = flags.request;
  const auto optimizer = flags.optimizer.given();
  if (!optimizer) return complain(optimizer.error());
  r.optimizer = *optimizer;
  r.input = flags.input();
  r.seed = flags.seed;
  r.seeds = flags.seeds;
  Progress bar("checking", flags.quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); }, .threads = flags.threads};
  const auto model = Model::load({.model = flags.model, .set = flags.set, .scheme = flags.scheme, .like = flags.like}, watch);
  if (!model) return complain(model.error());
  const auto done = model->coord(r, watch);
  if (!done) return complain(done.error());
  if (!flags.html.empty()) {
    if (const auto written = write_file(flags.html, done->html(flags.command)); !written) return complain(written.error());
  }
  if (flags.html != "-") {
    const std::string text = flags.json ? done->json() : coord_text(done->subject(), look_of_output(), flags.full);
    if (const int code = print(text); code != Exit::fine) return code;
  }
  return done->pass() ? Exit::fine : Exit::findings;
}

}  // namespace

void declare_coord(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb = app.add_subcommand("coord", "a coordinate check with a verdict: does a rate hold when the model grows?");
  auto flags = std::make_shared<CoordFlags>();
  CoordRequest& r = flags->request;
  flags->seeds = r.seeds;
  flags->command = "stepzero";
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  flags->declare_model(*verb);
  auto* widths = verb->add_option("--widths", r.widths, "the model at these widths: more heads of the same size")
                     ->delimiter(',')
                     ->check(CLI::Range(1, 1 << 24));
  verb->add_option("--depths", r.depths, "... or of so many layers")
      ->delimiter(',')
      ->check(CLI::Range(Index{1}, Architecture::most_layers))
      ->excludes(widths);
  std::vector<std::string> names = parametrization_names();
  names.emplace_back("none");
  verb->add_option("--parametrization", r.parametrization,
                   "how settings are carried from the first point to the others, as transfer does; none: not at all")
      ->check(CLI::IsMember(names))
      ->capture_default_str();
  verb->add_option("--base", r.base, "the width or depth that they are carried from [the first]")->check(CLI::PositiveNumber);
  verb->add_option("--at", r.at, "your own settings at a point: 256=FILE, a scheme and rates as transfer --json writes them; repeatable")
      ->allow_extra_args(false);
  verb->add_flag("--grow-heads", r.grow_heads, "larger heads rather than more of them");
  verb->add_flag("--keep-keys", r.keep_keys, "the number of key heads stays");
  verb->add_flag("--zero-output", r.zero_output, "the head begins at 0");
  verb->add_flag("--zero-query", r.zero_query, "queries begin at 0");
  auto* steps = verb->add_option("--steps", r.steps, "updates, all on one batch")->check(CLI::Range(1, 10000))->capture_default_str();
  verb->add_option("--seeds", flags->seeds, "draws: each has a slope of its own, which the errors come from")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_flag("--predicted", r.predicted, "by theory: the first step alone, in seconds, no draws")->excludes(steps);
  flags->optimizer.declare(*verb);
  verb->remove_option(verb->get_option("--rates"));
  verb->add_option("--html", flags->html, "also write a page");
  verb->add_flag("--full", flags->full, "every step");
  verb->footer(
      "The exit code is 1 when a slope is not what is demanded.\n\n"
      "Examples:\n  stepzero coord gpt2 --set layers=2 --set vocab=1000 --widths 128,256,512,1024 --seq-len 32\n"
      "  stepzero coord gpt2 --set layers=2 --set vocab=1000 --widths 128,256,512 --parametrization none --scheme lecun\n"
      "  stepzero coord gpt2 --set width=128 --set heads=4 --set vocab=1000 --depths 2,4,8,16 --parametrization completep\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
