#include <memory>

#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/report/transfer.hpp"
#include "stepzero/schemes/transfer_rules.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero::cli {

namespace {

struct TransferFlags {
  TransferRequest request;
  std::string base, like, scheme = "hf";
  std::vector<std::string> set;
  OptimizerFlags optimizer;
  std::string format = "text", output;
  bool json = false, full = false, quiet = false;
  Index seq_len = 0, batch = 0;
  int threads = 0;
  std::string command;
};

int run(const TransferFlags& flags) {
  TransferRequest request = flags.request;
  const auto optimizer = flags.optimizer.given();
  if (!optimizer) return complain(optimizer.error());
  request.optimizer = *optimizer;
  request.rates = flags.optimizer.rates;
  request.input = {.length = flags.seq_len, .sequences = flags.batch};
  Progress bar("stepping", flags.quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); }, .threads = flags.threads};
  const auto base = Model::load({.model = flags.base, .set = flags.set, .scheme = flags.scheme, .like = flags.like}, watch);
  if (!base) return complain(base.error());
  const auto done = base->transfer(request, watch);
  if (!done) return complain(done.error());
  const std::string format = flags.json ? "json" : flags.format;
  const std::string text = format == "json"    ? done->json()
                           : format == "torch" ? done->torch(flags.command)
                           : format == "table" ? done->rates()
                                               : transfer_text(done->subject(), look_of_output(), flags.full);
  if (flags.output.empty() || flags.output == "-") return print(text);
  if (const auto written = write_file(flags.output, text); !written) return complain(written.error());
  return Exit::fine;
}

}  // namespace

void declare_transfer(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb =
      app.add_subcommand("transfer", "settings found on a small model carried to a large one: std, rate, decay and eps of every tensor");
  auto flags = std::make_shared<TransferFlags>();
  flags->command = "stepzero";
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  verb->add_option("BASE", flags->base, "the model that settings were found on: a preset, a config.json, a directory, an architecture file")
      ->required();
  verb->add_option("TARGET", flags->request.target, "the model that they are carried to [BASE, with --target-set]");
  verb->add_option("--parametrization", flags->request.parametrization, "standard, aligned, mup, depth-mup, completep, spectral, u-mup")
      ->check(CLI::IsMember(parametrization_names()))
      ->capture_default_str();
  verb->add_option("--scheme", flags->scheme, "how the base is drawn (stepzero schemes)")->capture_default_str();
  verb->add_option("--set", flags->set, "override a field of both: key=value, repeatable")->allow_extra_args(false);
  verb->add_option("--base-set", flags->request.base_set, "a field of the base")->allow_extra_args(false);
  verb->add_option("--target-set", flags->request.target_set, "a field of the target")->allow_extra_args(false);
  verb->add_option("--like", flags->like, "read the config.json as one of this family, whatever model_type it names");
  flags->optimizer.declare(*verb);
  if (auto* optimizer = verb->get_option("--optimizer"))
    optimizer->description("that the base is trained by: adamw, sgd, lion, muon; also sophia, shampoo, soap, sso");
  verb->add_flag("--zero-output", flags->request.zero_output, "the head begins at 0");
  verb->add_flag("--zero-query", flags->request.zero_query, "queries begin at 0");
  verb->add_option("--format", flags->format,
                   "text, json (a scheme of init and a table of --rates too), torch (parameter groups), table (of --rates)")
      ->check(CLI::IsMember({"text", "json", "torch", "table"}))
      ->capture_default_str();
  verb->add_flag("--json", flags->json, "the same as --format json");
  verb->add_option("-o,--output", flags->output, "write to this file");
  verb->add_flag("--full", flags->full, "every tensor");
  auto* check = verb->add_flag("--check", flags->request.check,
                               "take a step of both models, and lay the effects of every tensor's update side by side");
  verb->add_option("--seq-len", flags->seq_len, "of --check: tokens in a sequence [128]")
      ->check(CLI::Range(Index{1}, Index{1} << 24))
      ->needs(check);
  verb->add_option("--batch", flags->batch, "of --check: sequences [1]")->check(CLI::Range(Index{1}, Index{1} << 24))->needs(check);
  verb->add_option("--seeds", flags->request.seeds, "of --check: draws")->check(CLI::Range(1, 100000))->capture_default_str();
  verb->add_option("--seed", flags->request.seed, "of --check: the first of them")->check(check_seed)->capture_default_str();
  verb->add_option("--threads", flags->threads, "threads to use [all cores]")->check(CLI::Range(1, 1000000));
  verb->add_flag("--quiet", flags->quiet, "no progress");
  verb->footer(
      "Examples:\n  stepzero transfer gpt2 gpt2-xl --rate 6e-4\n"
      "  stepzero transfer gpt2 gpt2-xl --parametrization completep --rate 6e-4 --decay 0.1 --json -o xl.json\n"
      "  stepzero init gpt2-xl --scheme xl.json -o weights/\n  stepzero train gpt2-xl --scheme xl.json --rates xl.json\n"
      "  stepzero transfer llama-3-8b --base-set width=512 --base-set heads=4 --base-set kv_heads=1 --base-set ffn=1792 --format torch\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
