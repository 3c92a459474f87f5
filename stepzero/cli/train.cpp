#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/optimizer_flags.hpp"
#include "stepzero/cli/present.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/corpus.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/report/train.hpp"
#include "stepzero/train/train.hpp"

namespace stepzero::cli {

namespace {

struct TrainFlags : CommonFlags {
  OptimizerFlags optimizer;
  std::vector<std::string> text;
  std::string level = "byte";
  std::string validation = "10%";
  std::string schedule = "constant";
  int steps = 100, warmup = 0, accumulate = 1;
  double rate_end = 0;
  double until_loss = 0;
  std::vector<std::string> compare_schemes;
  std::string weights, save, resume, csv;
  int save_every = 0, validate_every = 0;

  [[nodiscard]] bool from_ids() const { return verb->count("--tokens") + verb->count("--pixels") > 0; }
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

// The text that a run is fed with.
struct Source {
  Corpus corpus;
  std::string name;
};

Expected<Source> read_source(const TrainFlags& flags) {
  std::string text(default_text());
  if (!flags.text.empty()) {
    auto read = read_corpus_text(flags.text);
    if (!read) return std::unexpected(read.error());
    text = std::move(*read);
  }
  auto corpus = tokenize(text, flags.level);
  if (!corpus) return std::unexpected(corpus.error());
  const std::string where = flags.text.empty() ? "the derivations of this program" : fmt::format("{}", fmt::join(flags.text, ", "));
  return Source{std::move(*corpus), where};
}

bool is_preset(const std::string& model) {
  return std::ranges::any_of(presets(), [&](const Preset& p) { return p.name == model; });
}

bool sets(const std::vector<std::string>& set, std::string_view field) {
  return std::ranges::any_of(
      set, [&](const std::string& s) { return s.starts_with(field) && s.size() > field.size() && s[field.size()] == '='; });
}

// A preset takes the vocabulary of its text, unless it is told one or has weights for its own.
bool fits_vocabulary(const TrainFlags& flags) { return is_preset(flags.model) && flags.weights.empty() && !sets(flags.set, "vocab"); }

Expected<std::unique_ptr<Feed>> make_feed(const TrainFlags& flags, const Architecture& a, Source* source) {
  if (source == nullptr) {
    InputOptions input = flags.input();
    const Index asked = input.sequences;
    if (!is_drawn(input.tokens) || !input.pixels.empty()) input.sequences = 0;
    auto all = make_input(a, input);
    if (!all) return std::unexpected(all.error());
    const Index sequences = asked > 0 ? asked : all->sequences;
    return ordered_feed(std::move(*all), sequences, flags.accumulate);
  }
  if (a.image > 0) {
    return fail(fmt::format("{}: a model of images is not trained on text", show(a.name)), "--pixels FILE --labels FILE gives it images");
  }
  if (source->corpus.vocab > a.vocab) {
    return fail(fmt::format("{}: the text has a vocabulary of {}, the model one of {}", show(a.name), source->corpus.vocab, a.vocab),
                fmt::format("--set vocab={}, or another --level", source->corpus.vocab));
  }
  const auto validation = share_of(flags.validation);
  if (!validation) return std::unexpected(validation.error());
  const Index length = flags.seq_len > 0 ? flags.seq_len : std::min<Index>(128, a.positions);
  if (length > a.positions) {
    return fail(fmt::format("a sequence of {} tokens is longer than the model's {} positions", length, a.positions),
                fmt::format("use --seq-len {} or less, or --set positions={}", a.positions, length));
  }
  const bool next = flags.targets.empty() ? a.causal : flags.targets == "next";
  return text_feed(std::move(source->corpus.ids), {.validation = *validation,
                                                   .length = length,
                                                   .sequences = flags.batch > 0 ? flags.batch : 8,
                                                   .next = next,
                                                   .encoder = a.decoder_layers > 0});
}

// Everything that one scheme makes of the model.
struct Entry {
  Architecture architecture;
  Graph graph;
  Assignment laws;
  std::string config;
};

Expected<std::unique_ptr<Entry>> make_entry(const TrainFlags& flags, const std::string& name, const std::vector<std::string>& set,
                                            Index length) {
  const auto scheme = find_scheme(name);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(flags.model, set, **scheme, flags.like);
  if (!a) return std::unexpected(a.error());
  if (!flags.quiet) tell_notices(*a);
  auto config = checkpoint_options({.model = flags.model, .set = set, .scheme = name, .like = flags.like}, *a, {.seed = flags.seed});
  if (!config) return std::unexpected(config.error());
  auto entry = std::make_unique<Entry>();
  entry->config = config->config;
  choose_rope(*a, length);
  entry->graph = build_graph(*a);
  entry->laws = Assignment(entry->graph, *a, **scheme);
  entry->architecture = std::move(*a);
  return entry;
}

// What a state must agree on to be gone on with. The schedule's length counts where the rate depends on it.
RunSettings settings_of(const TrainFlags& flags, const TrainSubject& s, const Entry& entry, const std::string& scheme) {
  RunSettings out = {{"model", s.architecture.name}, {"scheme", scheme}, {"config", nlohmann::ordered_json::parse(entry.config)}};
  out["config"].erase("stepzero");
  out["optimizer"] = json(s.options.optimizer);
  out["rates"] = flags.optimizer.rates;
  out["schedule"] = {flags.schedule, flags.warmup, flags.rate_end, flags.schedule == "constant" ? 0 : flags.steps};
  out["data"] = {s.data, s.data_tokens, flags.from_ids() ? flags.tokens : flags.level, s.validation};
  out["batch"] = {s.batch, s.seq_len, flags.accumulate};
  out["weights"] = flags.weights;
  return out;
}

// A line that moves on a terminal: of the runs that are under way, the one that told last.
class Live {
 public:
  Live(const TrainFlags& flags, int runs)
      : bar_("training", flags.quiet || !speaks()), steps_(flags.steps), done_(static_cast<std::size_t>(runs), 0) {}

  void show(const RunRecord& record, int run, double speed) {
    done_[static_cast<std::size_t>(run)] = static_cast<double>(record.steps.size()) / steps_;
    const double all = std::accumulate(done_.begin(), done_.end(), 0.0) / static_cast<double>(done_.size());
    const TrainStep& last = record.steps.back();
    const std::string held = record.validation.empty() ? "" : fmt::format(", held out {:.3f}", record.validation.back().loss);
    bar_.show(all, fmt::format("update {} loss {:.3f}{}, gradient {:.2g}, rate {:.2g}, {:.0f} tokens/s", record.steps.size(), last.loss,
                               held, last.gradient_norm, last.rate, speed));
  }

 private:
  Progress bar_;
  double steps_;
  std::vector<double> done_;
};

Expected<void> check(const TrainFlags& flags) {
  if (!flags.save.empty() && !flags.resume.empty() && flags.save != flags.resume) {
    return fail("--save and --resume name two directories", "--resume alone goes on saving where it reads");
  }
  if (!flags.resume.empty() && !std::filesystem::is_directory(flags.resume)) {
    return fail(fmt::format("{}: there is no such directory", show(flags.resume)), "--resume takes what --save has made");
  }
  if (flags.from_ids() && !flags.text.empty()) return fail("--text and --tokens both say what to train on", "leave one of them away");
  const OptimizerOptions& o = flags.optimizer.options;
  if (flags.rate_end < 0 || (o.rate && flags.rate_end > *o.rate)) return fail("--rate-end is not between 0 and --rate");
  return {};
}

int run(const TrainFlags& flags) {
  set_threads(flags.threads);
  if (auto done = check(flags); !done) return complain(done.error());
  TrainPlan plan;
  const auto optimizer = flags.optimizer.settled();
  if (!optimizer) return complain(optimizer.error());
  std::optional<Source> source;
  std::vector<std::string> set = flags.set;
  if (!flags.from_ids()) {
    auto read = read_source(flags);
    if (!read) return complain(read.error());
    source = std::move(*read);
    if (fits_vocabulary(flags)) set.push_back(fmt::format("vocab={}", source->corpus.vocab));
  }
  TrainSubject subject;
  subject.scheme = flags.scheme;
  subject.steps = flags.steps;
  const auto validation = share_of(flags.validation);
  if (!validation) return complain(validation.error());
  subject.validation = source ? *validation : 0;
  subject.data = source ? fmt::format("{}, {}", source->name, source->corpus.name) : flags.tokens;
  subject.data_tokens = source ? std::ssize(source->corpus.ids) : 0;

  std::vector<std::string> schemes = {flags.scheme};
  schemes.insert(schemes.end(), flags.compare_schemes.begin(), flags.compare_schemes.end());
  std::vector<std::unique_ptr<Entry>> entries;
  std::unique_ptr<Feed> feed;
  for (const std::string& name : schemes) {
    const Index length = feed ? feed->shape().length : flags.seq_len > 0 ? flags.seq_len : 128;
    auto entry = make_entry(flags, name, set, length);
    if (!entry) return complain(entry.error());
    if (!feed) {
      auto made = make_feed(flags, (*entry)->architecture, source ? &*source : nullptr);
      if (!made) return complain(made.error());
      feed = std::move(*made);
    }
    entries.push_back(std::move(*entry));
  }
  const auto table = flags.optimizer.table(entries[0]->graph);
  if (!table) return complain(table.error());
  plan.options = {.optimizer = *optimizer, .rates = *table, .accumulate = flags.accumulate};
  plan.options.schedule = {.shape = flags.schedule == "cosine"   ? Shape::cosine
                                    : flags.schedule == "linear" ? Shape::linear
                                                                 : Shape::constant,
                           .warmup = flags.warmup,
                           .steps = flags.steps,
                           .end = flags.rate_end / std::max(1e-300, *optimizer->rate)};
  subject.architecture = entries[0]->architecture;
  subject.parameters = entries[0]->graph.parameter_count();
  subject.options = plan.options;
  subject.batch = feed->shape().sequences;
  subject.seq_len = feed->shape().length;

  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& e = *entries[i];
    plan.contenders.push_back({schemes[i], &e.graph, &e.architecture, &e.laws, settings_of(flags, subject, e, schemes[i]), e.config});
  }
  plan.feed = feed.get();
  plan.steps = flags.steps;
  plan.until = flags.until_loss;
  plan.seed = flags.seed;
  plan.seeds = flags.seeds;
  plan.validate_every = flags.validate_every;
  plan.save_every = flags.save_every;
  plan.weights = flags.weights;
  plan.resume = !flags.resume.empty();
  plan.save = plan.resume ? flags.resume : flags.save;
  plan.team = join_others(flags.threads, flags.quiet);
  Live live(flags, static_cast<int>(plan.contenders.size()) * plan.seeds);
  plan.progress = [&](const RunRecord& record, int i, double speed) { live.show(record, i, speed); };
  plan.warn = [&](const std::string& warning) {
    if (!flags.quiet && speaks()) fmt::print(stderr, "stepzero: warning: {}\n", warning);
  };
  const auto runs = train(plan);
  if (!runs) return complain(runs.error());
  if (!flags.csv.empty()) {
    if (auto done = write_file(flags.csv, train_csv(*runs)); !done) return complain(done.error());
  }
  const std::string result = flags.json ? train_json(subject, *runs) : train_text(subject, *runs, look_of_output());
  if (flags.csv != "-") {
    if (const int code = print(result); code != Exit::fine) return code;
  }
  return std::ranges::any_of(*runs, [](const RunRecord& r) { return r.outcome == Outcome::diverged; }) ? Exit::numerical : Exit::fine;
}

}  // namespace

void declare_train(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("train", "train it: text or token ids, any optimizer, several seeds and schemes side by side");
  auto flags = std::make_shared<TrainFlags>();
  flags->declare_model(*verb);
  verb->add_option("--text", flags->text, "files, or directories of text [the derivations of this program's documentation]");
  verb->add_option("--level", flags->level, "what a token is: byte, char, or bpe:tokenizer.json")->capture_default_str();
  verb->add_option("--validation", flags->validation, "the last part of the text, held out; 0: none")->capture_default_str();
  verb->add_option("--steps", flags->steps, "updates")->check(CLI::Range(0, 100000000))->transform(whole_number)->capture_default_str();
  verb->add_option("--until", flags->until_loss, "end once the held-out loss is at most this")->check(CLI::PositiveNumber);
  flags->optimizer.declare(*verb);
  verb->add_option("--schedule", flags->schedule, "of the rate: constant, cosine, linear")
      ->check(CLI::IsMember({"constant", "cosine", "linear"}))
      ->capture_default_str();
  verb->add_option("--warmup", flags->warmup, "updates over which the rate rises")->check(CLI::NonNegativeNumber)->capture_default_str();
  verb->add_option("--rate-end", flags->rate_end, "the rate that a cosine or a line ends at")->capture_default_str();
  verb->add_option("--accumulate", flags->accumulate, "batches whose mean gradient makes one update")
      ->check(CLI::Range(1, 65535))
      ->capture_default_str();
  verb->add_option("--seeds", flags->seeds, "runs, each from a draw and on text of its own")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  verb->add_option("--compare-schemes", flags->compare_schemes, "the same runs under other schemes")->delimiter(',');
  verb->add_option("--weights", flags->weights, "start from these: a .safetensors file, or a directory of shards");
  verb->add_option("--save", flags->save, "a directory for states on the way and the final weights");
  verb->add_option("--resume", flags->resume, "go on from the states of this directory, to the bit, and save there");
  verb->add_option("--save-every", flags->save_every, "updates [a tenth of --steps]")->check(CLI::PositiveNumber);
  verb->add_option("--validate-every", flags->validate_every, "updates [a tenth of --steps]")->check(CLI::PositiveNumber);
  verb->add_option("--csv", flags->csv, "also write every step to this file; - is standard output, and nothing else goes there");
  verb->footer(
      "A run ends by itself where a number is not finite or the loss stays far above where it began; the exit code is then 3.\n\n"
      "Examples:\n"
      "  stepzero train gpt2 --set layers=4 --set width=128 --set heads=4 --seq-len 64 --steps 200\n"
      "  stepzero train llama-3-8b --set layers=2 --set width=256 --set heads=4 --set kv_heads=2 --text notes/ --level char --seeds 3\n"
      "  stepzero train gpt2 --set layers=24 --set width=64 --set heads=2 --set norm_placement=post --compare-schemes deepnet --save "
      "runs\n");
  verb->callback([flags, &exit_code] { exit_code = run(*flags); });
}

}  // namespace stepzero::cli
