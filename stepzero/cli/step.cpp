#include <memory>

#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/report/step.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero::cli {

namespace {

struct StepFlags : CommonFlags {
  OptimizerFlags optimizer;
  bool measure = false, measured = false, full = false, no_search = false;
  double effort = 1;
  std::string html, command;
};

int run(const StepFlags& flags) {
  const auto optimizer = flags.optimizer.given();
  if (!optimizer) return complain(optimizer.error());
  Progress bar("stepping", flags.quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); }, .threads = flags.threads};
  const auto model = Model::load({flags.model, flags.set, flags.scheme, flags.like, flags.lora}, watch);
  if (!model) return complain(model.error());
  const auto done = model->step({.input = flags.input(),
                                 .optimizer = *optimizer,
                                 .rates = flags.optimizer.rates,
                                 .predicted = !flags.measured,
                                 .measured = flags.measure || flags.measured,
                                 .search = !flags.no_search,
                                 .effort = flags.effort,
                                 .seed = flags.seed,
                                 .seeds = flags.seeds},
                                watch);
  if (!done) return complain(done.error());
  if (!flags.html.empty()) {
    if (const auto written = write_file(flags.html, done->html(flags.command)); !written) return complain(written.error());
    if (flags.html == "-") return Exit::fine;
  }
  return print(flags.json ? done->json() : step_text(done->subject(), look_of_output(), flags.full));
}

}  // namespace

void declare_step(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb = app.add_subcommand("step", "what the first update does to every stream, score, logit and the loss: by theory, or measured");
  auto flags = std::make_shared<StepFlags>();
  flags->seeds = 4;
  flags->command = "stepzero";
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  flags->declare_model(*verb);
  auto* measure = verb->add_flag("--measure", flags->measure, "also take the step with real weights, side by side");
  verb->add_flag("--measured", flags->measured, "take it with real weights alone: any model that measure runs")->excludes(measure);
  verb->add_option("--seeds", flags->seeds, "of what is measured: how many draws to average")
      ->check(CLI::Range(1, 1000000))
      ->transform(whole_number)
      ->capture_default_str();
  flags->optimizer.declare(*verb);
  verb->add_flag("--no-search", flags->no_search, "leave out the loss over the rate");
  verb->add_option("--effort", flags->effort, "of theory: share of the usual sampling; more is slower and surer")
      ->check(CLI::Range(0.05, 1000.0))
      ->capture_default_str();
  verb->add_option("--html", flags->html, "also write a page");
  verb->add_flag("--full", flags->full, "every layer and tensor");
  verb->footer(
      "Examples:\n  stepzero step gpt2 --optimizer adamw --rate 6e-4\n"
      "  stepzero step gpt2 --set layers=2 --set width=128 --set heads=4 --optimizer muon --measure\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
