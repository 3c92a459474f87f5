#include <memory>

#include "stepzero/cli/command.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/walks/predict.hpp"

namespace stepzero::cli {

namespace {

struct PredictFlags : CommonFlags {
  bool full = false;
  bool jacobians = false;
};

int run(const PredictFlags& flags) {
  auto setup = prepare(flags);
  if (!setup) return complain(setup.error());
  if (auto fits = check_kernels(setup->graph, setup->architecture, setup->batch); !fits) return complain(fits.error());
  Signal signal = predict(setup->graph, setup->architecture, setup->batch, *setup->scheme, {.jacobians = flags.jacobians});
  signal.tokens = flags.tokens;
  return print(flags.json ? to_json(signal) + "\n" : to_text(signal, flags.full));
}

}  // namespace

void declare_predict(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("predict", "every moment by theory: no weights, any size of model");
  auto flags = std::make_shared<PredictFlags>();
  flags->declare(*verb);
  verb->add_flag("--full", flags->full, "every node and parameter, not only a row a layer");
  verb->add_flag("--jacobians", flags->jacobians, "also how a change of each layer's stream arrives at the last one");
  verb->footer("Examples:\n  stepzero predict llama-3-8b\n  stepzero predict gpt2 --set layers=48 --scheme xavier-normal --json\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
