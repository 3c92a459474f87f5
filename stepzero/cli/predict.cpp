#include <memory>

#include "stepzero/cli/predicting.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero::cli {

namespace {

struct PredictFlags : CommonFlags {
  ViewFlags view;
  std::string order = "draws";
  bool jacobians = false;
  bool whole = false;
  double effort = 1;
};

int run(const PredictFlags& flags) {
  auto setup = prepare(flags);
  if (!setup) return complain(setup.error());
  PredictOptions options{.order = order_of(flags.order).value(), .effort = flags.effort, .jacobians = flags.jacobians};
  if (flags.whole) options.longest = setup->batch.length, options.every_sequence = true;
  auto signal = predict_with_progress(*setup, flags, options);
  if (!signal) return complain(signal.error());
  signal->tokens = input_name(flags.input(), setup->batch);
  options.jacobians = false;
  return present(*signal, flags, flags.view, to_text, options);
}

}  // namespace

void declare_predict(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("predict", "every moment by theory: no weights, any size of model");
  auto flags = std::make_shared<PredictFlags>();
  flags->declare(*verb);
  flags->view.declare(*verb);
  verb->add_option(
          "--order", flags->order,
          "how much of a finite width: limit (none of it), fluctuations (how single draws differ), draws (and draws of the kernels)")
      ->check(CLI::IsMember(std::vector<std::string>(order_names.begin(), order_names.end())))
      ->capture_default_str();
  verb->add_flag("--jacobians", flags->jacobians, "also how a change of each layer's stream arrives at the last one");
  verb->add_flag("--whole", flags->whole,
                 "every token of a long sequence and every sequence of a large batch; else, beyond 512 tokens (256 with rotary positions), "
                 "predictions "
                 "are carried on from shorter ones, and few sequences stand for many");
  verb->add_option("--effort", flags->effort, "share of the usual sampling of heads, without draws of kernels below 1: faster, noisier")
      ->check(CLI::Range(0.001, 1.0))
      ->capture_default_str();
  verb->footer("Examples:\n  stepzero predict llama-3-8b\n  stepzero predict gpt2 --set layers=48 --scheme xavier-normal --json\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
