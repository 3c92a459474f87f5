#include <memory>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/terminal.hpp"

namespace stepzero::cli {

namespace {

struct MeasureFlags : CommonFlags {
  std::string weights;
  bool weightless = false;
  bool stream = false;
  std::string dtype = "f32";
  int steps = 0;
  OptimizerFlags optimizer;
  ViewFlags view;
};

int run(const MeasureFlags& flags) {
  auto setup = prepare(flags);
  if (!setup) return complain(setup.error());
  const auto optimizer = flags.optimizer.settled();
  if (!optimizer) return complain(optimizer.error());
  auto step = step_options(flags.steps, *optimizer, flags.optimizer.rates, setup->graph);
  if (!step) return complain(step.error());
  auto signal = measure_with_progress(*setup, flags,
                                      {.weights = flags.weights,
                                       .adapter = flags.adapter,
                                       .weightless = flags.weightless,
                                       .stream = flags.stream,
                                       .dtype = dtype_of(flags.dtype).value(),
                                       .step = std::move(*step)});
  if (!signal) return complain(signal.error());
  if (flags.dtype != "f32") signal->dtype = flags.dtype;
  signal->tokens = input_name(flags.input(), setup->batch);
  return present(*signal, flags, flags.view, to_text);
}

}  // namespace

void declare_measure(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("measure", "every moment by a real forward and backward pass");
  auto flags = std::make_shared<MeasureFlags>();
  flags->declare(*verb);
  flags->declare_draws(*verb);
  auto* weights = verb->add_option("--weights", flags->weights,
                                   "run the weights of this .safetensors file, or directory of shards, instead of drawing them");
  auto* weightless =
      verb->add_flag("--weightless", flags->weightless, "sample the pass without making the weights: exact in law, any size of model")
          ->excludes(weights);
  flags->declare_adapter(*verb);
  auto* stream =
      verb->add_flag(
              "--stream", flags->stream,
              "hold the weights of one node at a time, made again on the way up: the same numbers in little memory [where all do not fit]")
          ->excludes(weightless);
  verb->add_option("--dtype", flags->dtype, "round the weights drawn to f32, bf16 or f16, as init writes them")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}))
      ->capture_default_str()
      ->excludes(weights)
      ->excludes(weightless);
  auto* steps = verb->add_option("--steps", flags->steps, "then so many updates of the weights, and what each changes; weightless: one")
                    ->check(CLI::Range(1, 1000000))
                    ->excludes(stream);
  const std::size_t before = verb->get_options().size();
  flags->optimizer.declare(*verb);
  const auto options = verb->get_options();
  for (std::size_t k = before; k < options.size(); ++k) options[k]->needs(steps);
  flags->view.declare(*verb);
  verb->footer(
      "Examples:\n  stepzero measure gpt2 --seeds 4\n  stepzero measure gpt2 --set layers=48 --set norm_placement=post --scheme "
      "xavier-normal --json\n"
      "  stepzero measure llama-2-7b --stream --dtype bf16 --scheme llama-depth\n"
      "  stepzero measure llama-3-405b --weightless --seq-len 64\n"
      "  stepzero measure gpt2 --steps 1 --optimizer adamw --rate 6e-4\n"
      "  stepzero measure gpt2 --weights gpt2.safetensors --adapter adapter/\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
