#include <memory>

#include "stepzero/cli/command.hpp"
#include "stepzero/report/difference.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero::cli {

namespace {

struct DiffFlags {
  DiffRequest request;
  std::uint64_t seed = 0;
  bool full = false, json = false, quiet = false;
};

int run(const DiffFlags& flags) {
  Progress bar("comparing", flags.quiet);
  const auto done = diff(flags.request, {.progress = [&](double share, const std::string& what) { bar.show(share, what); }});
  if (!done) return complain(done.error());
  const std::string text = flags.json ? done->json() : difference_text(done->tensors(), flags.full);
  if (const int code = print(text); code != Exit::fine) return code;
  return done->same() ? Exit::fine : Exit::findings;
}

}  // namespace

void declare_diff(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("diff", "which tensors of two checkpoints, or of a checkpoint and a scheme, differ, and in what");
  auto flags = std::make_shared<DiffFlags>();
  verb->add_option("A", flags->request.left, "a file *.safetensors, or a directory of a checkpoint")->required();
  verb->add_option("B", flags->request.right, "another one, or a MODEL: what stepzero init would write for it")->required();
  verb->add_option("--scheme", flags->request.scheme, "of the model B [what A says of itself, or hf]");
  auto* seed = verb->add_option("--seed", flags->seed, "of the model B [what A says of itself, or 0]")->check(check_seed);
  verb->add_option("--set", flags->request.set, "override a field of the model B: key=value, repeatable")->allow_extra_args(false);
  verb->add_flag("--full", flags->full, "tensors that are the same, too");
  verb->add_flag("--json", flags->json, "as JSON (stepzero.diff/1)");
  verb->add_flag("--quiet", flags->quiet, "no progress");
  verb->footer(
      "Exit code 1 when anything differs.\n\nExamples:\n  stepzero diff step0.safetensors step1.safetensors\n"
      "  stepzero diff model.safetensors gpt2 --scheme gpt2   (was it drawn as the paper says?)\n");
  verb->callback([flags, seed, &exit_code] {
    if (seed->count() > 0) flags->request.seed = flags->seed;
    exit_code = run(*flags);
  });
}

}  // namespace stepzero::cli
