#include <memory>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/sweep.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/core/text.hpp"

namespace stepzero::cli {

namespace {

struct SweepFlags : CommonFlags {
  SweepRequest request;
  OptimizerFlags optimizer;
  std::vector<std::string> shown = {"backward"};
  std::string order = "limit", csv;
};

Expected<void> check_shown(const std::vector<std::string>& shown, int runs) {
  for (const std::string& name : shown) {
    std::vector<std::string> known;
    for (const solve::Quantity& q : solve::quantities()) known.emplace_back(q.name);
    if (runs > 0) known.emplace_back("trained");
    if (std::ranges::find(known, name) == known.end())
      return fail(fmt::format("--show {}: no such quantity", show(name)),
                  fmt::format("they are {}{}", fmt::join(known, ", "), runs > 0 ? "" : "; with --train also trained"));
  }
  return {};
}

int run(const SweepFlags& flags) {
  SweepRequest request = flags.request;
  const auto options = flags.optimizer.settled();
  if (!options) return complain(options.error());
  request.training.optimizer = *options;
  request.training.rates = flags.optimizer.rates;
  request.training.seed = flags.seed;
  request.input = flags.input();
  if (request.input.length == 0) request.input.length = 32;
  request.training.input = request.input;
  request.order = flags.order == "limit" ? Order::limit : flags.order == "fluctuations" ? Order::fluctuations : Order::draws;
  if (auto done = check_shown(flags.shown, request.train); !done) return complain(done.error());
  Progress bar("sweeping", flags.quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); }, .threads = flags.threads};
  const Team team = join_others(flags.threads, flags.quiet);
  const auto done = guarded(watch, [&] {
    return run_sweep({.model = flags.model, .set = flags.set, .scheme = flags.scheme, .like = flags.like}, request, watch, team);
  });
  if (!done) return complain(done.error());
  if (!speaks()) return Exit::fine;
  if (!flags.csv.empty()) {
    if (const auto written = write_file(flags.csv, sweep_csv(*done)); !written) return complain(written.error());
    if (flags.csv == "-") return Exit::fine;
  }
  if (flags.json) return print(sweep_json(*done));
  std::string text;
  for (const std::string& name : flags.shown) text += (text.empty() ? "" : "\n") + sweep_text(*done, name, look_of_output());
  return print(text);
}

std::string help() {
  std::string out = "Quantities:\n";
  for (const solve::Quantity& q : solve::quantities()) out += fmt::format("  {:<15} {}\n", q.name, q.words);
  return out +
         "\nExamples:\n  stepzero sweep gpt2 --over std.ffn_out=0.1..10:x64 --over std.attention_out=0.1..10:x64\n"
         "  stepzero sweep gpt2 --over layers=2..96:x12 --over residual_scale=0.05..2:x20 --show cosine --show backward\n"
         "  stepzero sweep gpt2 --set width=48 --set heads=3 --over layers=2,4,8 --over rate=1e-3..1e-1:x8 --train 2 --steps 100 --store "
         "map.jsonl "
         "--show trained\n";
}

}  // namespace

void declare_sweep(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("sweep", "maps of what is predicted (and of short trainings) over one or two axes");
  auto flags = std::make_shared<SweepFlags>();
  flags->declare_model(*verb);
  SweepRequest& r = flags->request;
  verb->add_option(
          "--over", r.over,
          "an axis: key=a..b:n, key=a..b:xn (geometric), key=a,b,c; a field of --set, std.ROLE, tokens, scheme, rate; once or twice")
      ->required()
      ->allow_extra_args(false);
  verb->add_option("--show", flags->shown, "what the map shows; repeatable")->allow_extra_args(false)->capture_default_str();
  verb->add_option("--order", flags->order, "of predictions: limit, fluctuations, draws")
      ->check(CLI::IsMember({"limit", "fluctuations", "draws"}))
      ->capture_default_str();
  verb->add_option("--effort", r.effort, "of predictions: share of the usual sampling of heads")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  verb->add_option("--csv", flags->csv, "also write every cell to this file; - is standard output");
  auto* train = verb->add_option("--train", r.train, "so many short trainings in every cell")->check(CLI::Range(1, 1000));
  verb->add_option("--steps", r.training.steps, "of --train: updates")->check(CLI::Range(1, 1000000))->capture_default_str()->needs(train);
  verb->add_option("--text", r.training.text, "of --train: files and directories")->needs(train);
  verb->add_option("--level", r.training.level, "of --train: byte, char, bpe:tokenizer.json")->capture_default_str()->needs(train);
  verb->add_option("--store", r.store, "of --train: a file that keeps trained cells; the same command goes on where it ended")
      ->needs(train);
  flags->optimizer.declare(*verb);
  verb->footer(help());
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
