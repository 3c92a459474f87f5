#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "stepzero/cli/predicting.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/compare.hpp"

namespace stepzero::cli {

namespace {

struct CompareFlags : CommonFlags {
  bool weightless = false;
  ViewFlags view;
};

int run(const CompareFlags& flags) {
  auto setup = prepare(flags);
  if (!setup) return complain(setup.error());
  const auto theory = predict_with_progress(*setup, flags);
  if (!theory) return complain(theory.error());
  const auto real = measure_with_progress(*setup, flags, {.weightless = flags.weightless});
  if (!real) return complain(real.error());
  Signal joined = join(*theory, *real);
  joined.tokens = input_name(flags.input(), setup->batch);
  joined.weightless = flags.weightless;
  const auto json = [](const Signal& s) { return to_json(s, compare(s)); };
  if (const int code = present(joined, flags, flags.view, compare_text, {}, json); code != Exit::fine) return code;
  return std::ranges::any_of(compare(joined), &Comparison::wrong) ? Exit::findings : Exit::fine;
}

}  // namespace

void declare_compare(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("compare", "predicted and measured side by side, the worst first");
  auto flags = std::make_shared<CompareFlags>();
  flags->seeds = 8;
  flags->declare(*verb);
  flags->declare_draws(*verb);
  verb->add_flag("--weightless", flags->weightless, "measure without making the weights: any size of model");
  flags->view.declare(*verb);
  verb->footer(
      "Exit code 1 when a number is off by more than both 5 standard errors and 10 %.\n\nExamples:\n  stepzero compare gpt2 --seeds 16\n  "
      "stepzero compare gpt2 --set layers=2 --set norm_placement=post --scheme he\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
