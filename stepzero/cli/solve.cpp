#include <memory>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/solve.hpp"
#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"

namespace stepzero::cli {

namespace {

struct SolveFlags : CommonFlags {
  SolveRequest request;
  OptimizerFlags optimizer;
  bool measure = false, full = false;
  std::string order = "draws";
  std::string output, torch, rates_output, command;
};

int write_files(const SolveFlags& flags, const SolveSubject& solved) {
  for (const auto& [path, text] :
       {std::pair(flags.output, solve_scheme(solved)), std::pair(flags.torch, solve_torch(solved, flags.command)),
        std::pair(flags.rates_output, solve_rates(solved))}) {
    if (path.empty()) continue;
    if (const auto written = write_file(path, text); !written) return complain(written.error());
  }
  return Exit::fine;
}

int run(const SolveFlags& flags) {
  SolveRequest request = flags.request;
  const auto options = flags.optimizer.settled();
  if (!options) return complain(options.error());
  request.optimizer = *options;
  request.rates = flags.optimizer.rates;
  request.input = flags.input();
  request.measure = flags.measure ? flags.seeds : 0;
  request.seed = flags.seed;
  request.order = flags.order == "limit" ? Order::limit : flags.order == "fluctuations" ? Order::fluctuations : Order::draws;
  Progress bar("solving", flags.quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); }, .threads = flags.threads};
  const auto done = guarded(watch, [&]() -> Expected<SolveSubject> {
    const auto scheme = find_scheme(flags.scheme);
    if (!scheme) return std::unexpected(scheme.error());
    const auto a = describe_model(flags.model, flags.set, **scheme, flags.like);
    if (!a) return std::unexpected(a.error());
    return run_solve(*a, **scheme, request, watch);
  });
  if (!done) return complain(done.error());
  if (const int code = write_files(flags, *done); code != Exit::fine) return code;
  for (const std::string* file : {&flags.output, &flags.torch, &flags.rates_output}) {
    if (*file == "-") return Exit::fine;
  }
  return print(flags.json ? solve_json(*done) : solve_text(*done, look_of_output(), flags.full));
}

std::string help() {
  std::string out = "Objectives:\n";
  for (const solve::Objective& o : solve::objectives()) {
    out += fmt::format("  {:<8} {}\n           {}\n", o.name, o.summary, o.formula);
    for (const auto& s : o.settings) out += fmt::format("           --target {}: {}\n", s.name, s.words);
  }
  return out +
         "\nExamples:\n  stepzero solve gpt2 -o scheme.json\n  stepzero measure gpt2 --scheme scheme.json\n"
         "  stepzero solve bert-base --objective flat --subject-to loss=0.5 --measure\n"
         "  stepzero solve gpt2 --objective update --optimizer adamw --rate 6e-4 --torch init.py\n"
         "  stepzero solve llama-3-8b --objective flat+depth --free value,attention_out,ffn_out --by layer\n";
}

}  // namespace

void declare_solve(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb = app.add_subcommand("solve", "scales of tensors (and multipliers, and rates) that meet an objective, as a scheme");
  auto flags = std::make_shared<SolveFlags>();
  flags->seeds = 4;
  flags->command = "stepzero";
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  flags->declare_model(*verb);
  SolveRequest& r = flags->request;
  verb->add_option("--objective", r.objective, "flat, depth, update, tangent, range; or a sum: flat+0.5*depth")->capture_default_str();
  verb->add_option("--target", r.targets, "a setting of the objective: key=value, repeatable")->allow_extra_args(false);
  verb->add_option("--free", r.free, "what may move: roles, roles that move together (value+attention_out), multipliers (residual_scale)")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--subject-to", r.subject_to, "a bound: loss=0.1, scores=0.1..1, queries=0.01, range=fp16; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--by", r.by, "one factor a role, or one for layers at up to five depths and lines between them: role, layer")
      ->check(CLI::IsMember({"role", "layer"}))
      ->capture_default_str();
  verb->add_flag("--move-rates", r.move_rates, "of update: the rates of tensors move rather than their stds");
  verb->add_option("--order", flags->order, "of the predictions that are shown: limit, fluctuations, draws")
      ->check(CLI::IsMember({"limit", "fluctuations", "draws"}))
      ->capture_default_str();
  flags->optimizer.declare(*verb);
  auto* measure = verb->add_flag("--measure", flags->measure, "confirm by real passes");
  verb->add_option("--seeds", flags->seeds, "of --measure: draws")->check(CLI::Range(1, 100000))->capture_default_str()->needs(measure);
  verb->add_option("-o,--output", flags->output, "write the scheme, for --scheme, to this file");
  verb->add_option("--torch", flags->torch, "write a snippet that draws these weights by PyTorch to this file");
  verb->add_option("--rates-output", flags->rates_output, "of --move-rates: write the table for --rates to this file");
  verb->add_flag("--full", flags->full, "every target");
  verb->footer(help());
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
