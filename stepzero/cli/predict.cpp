#include <memory>

#include "stepzero/cli/present.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/walks/predict.hpp"

namespace stepzero::cli {

namespace {

struct PredictFlags : CommonFlags {
  ViewFlags view;
  bool jacobians = false;
};

int run(const PredictFlags& flags) {
  auto setup = prepare(flags);
  if (!setup) return complain(setup.error());
  if (auto fits = check_kernels(setup->graph, setup->architecture, setup->batch); !fits) return complain(fits.error());
  Signal signal = predict(setup->graph, setup->architecture, setup->batch, *setup->scheme, {.jacobians = flags.jacobians});
  signal.tokens = flags.tokens;
  return present(signal, flags, flags.view, to_text);
}

}  // namespace

void declare_predict(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("predict", "every moment by theory: no weights, any size of model");
  auto flags = std::make_shared<PredictFlags>();
  flags->declare(*verb);
  flags->view.declare(*verb);
  verb->add_flag("--jacobians", flags->jacobians, "also how a change of each layer's stream arrives at the last one");
  verb->footer("Examples:\n  stepzero predict llama-3-8b\n  stepzero predict gpt2 --set layers=48 --scheme xavier-normal --json\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
