#include <algorithm>
#include <charconv>
#include <memory>

#include <fmt/format.h>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/train.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/cli/remedies.hpp"
#include "stepzero/core/text.hpp"

namespace stepzero::cli {

namespace {

struct TrainFlags : CommonFlags {
  OptimizerFlags optimizer;
  TrainRequest request;
  std::string validation = "10%", schedule = "constant";
  std::string resume, csv, html;
  std::string command;  // the command line
};

// "10%" or "0.1"; 0 is none
Expected<double> share_of(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, text.data() + text.size());
  if (rest == "%") value /= 100;
  if (error == std::errc() && (rest.empty() || rest == "%") && value >= 0 && value < 1) return value;
  return fail(fmt::format("--validation \"{}\" is not a share from 0 to below 1", show(text)), "for example --validation 10%");
}

Expected<TrainRequest> request_of(const TrainFlags& flags) {
  TrainRequest r = flags.request;
  const auto validation = share_of(flags.validation);
  if (!validation) return std::unexpected(validation.error());
  const auto optimizer = flags.optimizer.settled();
  if (!optimizer) return std::unexpected(optimizer.error());
  if (!r.save.empty() && !flags.resume.empty() && r.save != flags.resume) {
    return fail("--save and --resume name two directories", "--resume alone goes on saving where it reads");
  }
  r.validation = *validation;
  r.optimizer = *optimizer;
  r.rates = flags.optimizer.rates;
  r.schedule = flags.schedule == "cosine" ? RateShape::cosine : flags.schedule == "linear" ? RateShape::linear : RateShape::constant;
  r.ids = flags.verb->count("--tokens") + flags.verb->count("--pixels") + flags.verb->count("--features") > 0;
  r.input = flags.input();
  r.seed = flags.seed;
  r.seeds = flags.seeds;
  r.resume = !flags.resume.empty();
  if (r.resume) r.save = flags.resume;
  if (r.watch.empty() && !flags.html.empty()) r.watch = watched_steps(r.steps);
  return r;
}

int run(const TrainFlags& flags) {
  const auto request = request_of(flags);
  if (!request) return complain(request.error());
  const ModelRequest model{.model = flags.model, .set = flags.set, .scheme = flags.scheme, .like = flags.like, .lora = flags.lora};
  const bool quiet = flags.quiet || !speaks();
  const Team team = join_others(flags.threads, quiet);
  Progress bar("training", quiet);
  const Watch watch{.progress = [&](double share, const std::string& what) { bar.show(share, what); },
                    .warn =
                        [&](const std::string& warning) {
                          if (!quiet) tell(fmt::format("stepzero: warning: {}\n", warning));
                        },
                    .threads = flags.threads};
  const auto trained = guarded(watch, [&] { return run_training(model, *request, watch, team); });
  if (!trained) return complain(trained.error());
  if (!flags.csv.empty()) {
    if (auto done = write_file(flags.csv, train_csv(trained->runs)); !done) return complain(done.error());
  }
  if (!flags.html.empty()) {
    if (auto done = write_file(flags.html, train_html(trained->subject, trained->runs, flags.command, version())); !done)
      return complain(done.error());
  }
  if (flags.csv != "-") {
    const std::string result =
        flags.json ? train_json(trained->subject, trained->runs) : train_text(trained->subject, trained->runs, look_of_output());
    if (const int code = print(result); code != Exit::fine) return code;
  }
  const bool diverged = std::ranges::any_of(trained->runs, [](const RunRecord& r) { return r.outcome == Outcome::diverged; });
  return diverged ? Exit::numerical : Exit::fine;
}

}  // namespace

void declare_train(CLI::App& app, int& exit_code, const std::vector<std::string>& words) {
  auto* verb = app.add_subcommand("train", "train it: text or token ids, any optimizer, several seeds and schemes side by side");
  auto flags = std::make_shared<TrainFlags>();
  TrainRequest& r = flags->request;
  flags->declare_model(*verb);
  flags->command = "stepzero";
  for (const std::string& word : words) flags->command += " " + shell_word(word);
  verb->add_option("--text", r.text, "files, or directories of text [the derivations of this program's documentation]");
  verb->add_option("--level", r.level, "what a token is: byte, char, or bpe:tokenizer.json")->capture_default_str();
  verb->add_option("--validation", flags->validation, "the last part of the text, held out; 0: none")->capture_default_str();
  verb->add_option("--steps", r.steps, "updates")->check(CLI::Range(0, 100000000))->transform(whole_number)->capture_default_str();
  verb->add_option("--until", r.until, "end once the held-out loss is at most this")->check(CLI::PositiveNumber);
  flags->optimizer.declare(*verb);
  verb->add_option("--schedule", flags->schedule, "of the rate: constant, cosine, linear")
      ->check(CLI::IsMember({"constant", "cosine", "linear"}))
      ->capture_default_str();
  verb->add_option("--warmup", r.warmup, "updates over which the rate rises")->check(CLI::NonNegativeNumber)->capture_default_str();
  verb->add_option("--rate-end", r.rate_end, "the rate that a cosine or a line ends at")->capture_default_str();
  verb->add_option("--accumulate", r.accumulate, "batches whose mean gradient makes one update")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  verb->add_option("--seeds", flags->seeds, "runs, each from a draw and on text of its own")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--compare-schemes", r.compare_schemes, "the same runs under other schemes")->delimiter(',');
  verb->add_option("--weights", r.weights, "start from these: a .safetensors file, or a directory of shards");
  verb->add_option("--save", r.save, "a directory for states on the way and the final weights");
  verb->add_option("--resume", flags->resume, "go on from the states of this directory, to the bit, and save there");
  verb->add_option("--save-every", r.save_every, "updates [a tenth of --steps]")->check(CLI::PositiveNumber);
  verb->add_option("--validate-every", r.validate_every, "updates [a tenth of --steps]")->check(CLI::PositiveNumber);
  verb->add_option("--csv", flags->csv, "also write every step to this file; - is standard output, and nothing else goes there");
  verb->add_option("--html", flags->html,
                   "also write a page: the losses, and the signal and the gradient over the depth at the watched updates");
  verb->add_option("--watch", r.watch, "look at every wire after these updates [with --html 0, 1, 10, 100, ... and the last]")
      ->delimiter(',')
      ->check(CLI::NonNegativeNumber);
  verb->footer(
      "A run ends by itself where a number is not finite or the loss stays far above where it began; the exit code is then 3.\n\n"
      "Examples:\n"
      "  stepzero train gpt2 --set layers=4 --set width=128 --set heads=4 --seq-len 64 --steps 200\n"
      "  stepzero train llama-3-8b --set layers=2 --set width=256 --set heads=4 --set kv_heads=2 --text notes/ --level char --seeds 3\n"
      "  stepzero train gpt2 --weights gpt2.safetensors --lora rank=8,roles=query,value --text notes/ --level bpe:tokenizer.json --save "
      "adapter\n"
      "  stepzero train gpt2 --set layers=24 --set width=64 --set heads=2 --set norm_placement=post --compare-schemes deepnet --save "
      "runs\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
