#include "stepzero/api/train.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/checkpoints.hpp"
#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/corpus.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/train/train.hpp"

namespace stepzero {

namespace {

// The text that a run is fed with.
struct Source {
  Corpus corpus;
  std::string name;
};

Expected<Source> read_source(const TrainRequest& request) {
  std::string text(default_text());
  if (!request.text.empty()) {
    auto read = read_corpus_text(request.text);
    if (!read) return std::unexpected(read.error());
    text = std::move(*read);
  }
  auto corpus = tokenize(text, request.level);
  if (!corpus) return std::unexpected(corpus.error());
  const std::string where = request.text.empty() ? "the derivations of this program" : fmt::format("{}", fmt::join(request.text, ", "));
  return Source{std::move(*corpus), where};
}

// A preset takes the vocabulary of its text, unless it is told one or has weights for its own.
bool takes_vocabulary(const ModelRequest& model, const TrainRequest& request) {
  const bool preset = std::ranges::any_of(presets(), [&](const Preset& p) { return p.name == model.model; });
  const bool told = std::ranges::any_of(model.set, [](const std::string& s) { return s.starts_with("vocab="); });
  return preset && !told && request.weights.empty();
}

Expected<std::unique_ptr<Feed>> feed_of_ids(const TrainRequest& request, const Architecture& a) {
  InputOptions input = request.input;
  const Index asked = input.sequences;
  if (!is_drawn(input.tokens) || !input.pixels.empty()) input.sequences = 0;  // all that the file has
  auto all = make_input(a, input);
  if (!all) return std::unexpected(all.error());
  const Index sequences = asked > 0 ? asked : all->sequences;
  return ordered_feed(std::move(*all), sequences, request.accumulate);
}

Expected<std::unique_ptr<Feed>> feed_of_text(const TrainRequest& request, const Architecture& a, Corpus& corpus) {
  if (a.image > 0) {
    return fail(fmt::format("{}: a model of images is not trained on text", show(a.name)), "--pixels FILE --labels FILE gives it images");
  }
  if (a.pooled || a.frames > 0) {
    return fail(
        fmt::format("{}: a model {} is not trained on text alone", show(a.name), a.pooled ? "that classifies sequences" : "that hears"),
        a.pooled ? "--tokens FILE --labels FILE gives it both" : "--features FILE --tokens FILE gives it both");
  }
  if (corpus.vocab > a.vocab) {
    return fail(fmt::format("{}: the text has a vocabulary of {}, the model one of {}", show(a.name), corpus.vocab, a.vocab),
                fmt::format("--set vocab={}, or another --level", corpus.vocab));
  }
  const Index length = request.input.length > 0 ? request.input.length : std::min<Index>(128, a.positions);
  if (length > a.positions) {
    return fail(fmt::format("a sequence of {} tokens is longer than the model's {} positions", length, a.positions),
                fmt::format("use --seq-len {} or less, or --set positions={}", a.positions, length));
  }
  return text_feed(std::move(corpus.ids),
                   {.validation = request.validation,
                    .length = length,
                    .sequences = request.input.sequences > 0 ? request.input.sequences : 8,
                    .next = request.input.targets.value_or(a.causal ? Targets::next : Targets::same) == Targets::next,
                    .encoder = a.decoder_layers > 0});
}

// Everything that one scheme makes of the model.
struct Entry {
  ModelRequest request;
  Architecture architecture;
  Graph graph;
  Assignment laws;
  std::string config;
};

Expected<std::unique_ptr<Entry>> make_entry(ModelRequest request, std::uint64_t seed, Index length, const Watch& watch) {
  const auto scheme = find_scheme(request.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  auto a = describe_model(request.model, request.set, **scheme, request.like);
  if (!a) return std::unexpected(a.error());
  for (const std::string& notice : a->notices) {
    if (watch.warn) watch.warn(notice);
  }
  auto files = checkpoint_options(request, *a, {.seed = seed});
  if (!files) return std::unexpected(files.error());
  choose_rope(*a, length);
  auto graph = graph_of(*a, {.lora = request.lora});
  if (!graph) return std::unexpected(graph.error());
  Assignment laws(*graph, *a, **scheme);
  return std::make_unique<Entry>(Entry{std::move(request), std::move(*a), std::move(*graph), std::move(laws), std::move(files->config)});
}

// What a state must agree on to be gone on with. The schedule's length counts where the rate depends on it.
RunSettings settings_of(const TrainRequest& r, const TrainSubject& s, const Entry& entry) {
  RunSettings out = {
      {"model", s.architecture.name}, {"scheme", entry.request.scheme}, {"config", nlohmann::ordered_json::parse(entry.config)}};
  out["config"].erase("stepzero");
  out["optimizer"] = json(s.options.optimizer);
  out["rates"] = r.rates;
  out["schedule"] = {static_cast<int>(r.schedule), r.warmup, r.rate_end, r.schedule == RateShape::constant ? 0 : r.steps};
  out["data"] = {s.data, s.data_tokens, r.ids ? r.input.tokens : r.level, s.validation};
  out["batch"] = {s.batch, s.seq_len, r.accumulate};
  out["weights"] = r.weights;
  out["lora"] = entry.request.lora;
  return out;
}

Expected<void> check(const TrainRequest& r, const OptimizerOptions& optimizer) {
  if (r.seeds < 1) return fail(fmt::format("{} seeds: at least one is needed", r.seeds));
  if (r.steps < 0) return fail(fmt::format("{} steps", r.steps));
  if (r.accumulate < 1 || r.accumulate > 65535) return fail(fmt::format("{} batches an update: 1 to 65535", r.accumulate));
  if (!(r.validation >= 0 && r.validation < 1)) return fail(fmt::format("--validation {} is not a share from 0 to below 1", r.validation));
  if (r.ids && !r.text.empty()) return fail("--text and --tokens both say what to train on", "leave one of them away");
  if (!(r.rate_end >= 0 && r.rate_end <= *optimizer.rate))
    return fail(fmt::format("--rate-end {} is not between 0 and the rate, {}", r.rate_end, *optimizer.rate));
  if (r.resume && !std::filesystem::is_directory(r.save)) {
    return fail(fmt::format("{}: there is no such directory", show(r.save)), "--resume takes what --save has made");
  }
  return {};
}

class Trainer {
 public:
  Trainer(const ModelRequest& model, const TrainRequest& request, const Watch& watch) : model_(model), request_(request), watch_(watch) {}

  Expected<Trained> run(const Team& team) {
    const auto optimizer = settled(request_.optimizer);
    if (!optimizer) return std::unexpected(optimizer.error());
    if (auto done = check(request_, *optimizer); !done) return std::unexpected(done.error());
    if (auto done = read(); !done) return std::unexpected(done.error());
    if (auto done = build(); !done) return std::unexpected(done.error());
    const auto rates = request_.rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(request_.rates, entries_[0]->graph.params);
    if (!rates) return std::unexpected(rates.error());
    const Trained out{subject({*optimizer, *rates}), {}};
    auto runs = train(plan(out.subject, team));
    if (!runs) return std::unexpected(runs.error());
    return Trained{out.subject, std::move(*runs)};
  }

 private:
  Expected<void> read() {
    if (request_.ids) return {};
    auto source = read_source(request_);
    if (!source) return std::unexpected(source.error());
    source_ = std::move(*source);
    if (takes_vocabulary(model_, request_)) model_.set.push_back(fmt::format("vocab={}", source_->corpus.vocab));
    text_tokens_ = std::ssize(source_->corpus.ids);
    return {};
  }

  Expected<void> build() {
    std::vector<std::string> schemes = {model_.scheme};
    schemes.insert(schemes.end(), request_.compare_schemes.begin(), request_.compare_schemes.end());
    Index length = request_.input.length > 0 ? request_.input.length : 128;
    for (const std::string& scheme : schemes) {
      ModelRequest own = model_;
      own.scheme = scheme;
      auto entry = make_entry(std::move(own), request_.seed, length, watch_);
      if (!entry) return std::unexpected(entry.error());
      entries_.push_back(std::move(*entry));
      if (feed_) continue;
      const Architecture& a = entries_[0]->architecture;
      auto feed = source_ ? feed_of_text(request_, a, source_->corpus) : feed_of_ids(request_, a);
      if (!feed) return std::unexpected(feed.error());
      feed_ = std::move(*feed);
      length = feed_->shape().length;
    }
    return {};
  }

  [[nodiscard]] TrainSubject subject(TrainOptions options) const {
    options.accumulate = request_.accumulate;
    const double rate = *options.optimizer.rate;
    options.schedule = {
        .shape = request_.schedule, .warmup = request_.warmup, .steps = request_.steps, .end = rate > 0 ? request_.rate_end / rate : 0};
    return {.architecture = entries_[0]->architecture,
            .parameters = entries_[0]->graph.parameter_count(),
            .trainable = entries_[0]->graph.trainable_count(),
            .scheme = model_.scheme,
            .options = std::move(options),
            .steps = request_.steps,
            .data = source_ ? fmt::format("{}, {}", source_->name, source_->corpus.name) : request_.input.tokens,
            .data_tokens = text_tokens_,
            .batch = feed_->shape().sequences,
            .seq_len = feed_->shape().length,
            .validation = source_ ? request_.validation : 0};
  }

  [[nodiscard]] TrainPlan plan(const TrainSubject& subject, const Team& team) {
    TrainPlan plan{.contenders = {},
                   .feed = feed_.get(),
                   .options = subject.options,
                   .steps = request_.steps,
                   .until = request_.until,
                   .seed = request_.seed,
                   .seeds = request_.seeds,
                   .validate_every = request_.validate_every,
                   .watch = request_.watch,
                   .weights = request_.weights,
                   .save = request_.save,
                   .tokenizer = source_ ? source_->corpus.tokenizer : "",
                   .save_every = request_.save_every,
                   .resume = request_.resume,
                   .team = team};
    for (const auto& e : entries_) {
      plan.contenders.push_back({e->request.scheme, &e->graph, &e->architecture, &e->laws, settings_of(request_, subject, *e), e->config,
                                 model_.lora.empty() ? "config.json" : "adapter_config.json"});
    }
    done_.assign(plan.contenders.size() * static_cast<std::size_t>(plan.seeds), 0.0);
    plan.progress = [this](const RunRecord& record, int run, double speed) { tell(record, run, speed); };
    plan.warn = watch_.warn;
    return plan;
  }

  // Of the runs that are under way, the one that told last.
  void tell(const RunRecord& record, int run, double speed) {
    if (!watch_.progress) return;
    done_[static_cast<std::size_t>(run)] = static_cast<double>(record.steps.size()) / request_.steps;
    const double all = std::accumulate(done_.begin(), done_.end(), 0.0) / static_cast<double>(done_.size());
    const TrainStep& last = record.steps.back();
    const std::string held = record.validation.empty() ? "" : fmt::format(", held out {:.3f}", record.validation.back().loss);
    watch_.progress(all, fmt::format("update {} loss {:.3f}{}, gradient {:.2g}, rate {:.2g}, {:.0f} tokens/s", record.steps.size(),
                                     last.loss, held, last.gradient_norm, last.rate, speed));
  }

  ModelRequest model_;
  const TrainRequest& request_;
  const Watch& watch_;
  std::optional<Source> source_;
  Index text_tokens_ = 0;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::unique_ptr<Feed> feed_;
  std::vector<double> done_;  // share of every run
};

}  // namespace

std::vector<int> watched_steps(int steps) {
  std::vector<int> out = {0};
  for (int k = 1; k < steps && k < 1'000'000; k *= 10) out.push_back(k);
  if (steps > 0) out.push_back(steps);
  return out;
}

Expected<Trained> run_training(const ModelRequest& model, const TrainRequest& request, const Watch& watch, const Team& team) {
  return Trainer(model, request, watch).run(team);
}

Expected<TrainResult> Model::train(const TrainRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<TrainResult> {
    auto trained = run_training(request_, request, watch);
    if (!trained) return std::unexpected(trained.error());
    return TrainResult(std::make_shared<const Trained>(std::move(*trained)));
  });
}

std::string TrainResult::json() const { return train_json(trained_->subject, trained_->runs); }
std::string TrainResult::csv() const { return train_csv(trained_->runs); }
std::string TrainResult::html(const std::string& command) const {
  return train_html(trained_->subject, trained_->runs, command, version());
}

std::vector<double> TrainResult::losses(std::size_t run) const {
  std::vector<double> out;
  if (run >= trained_->runs.size()) return out;
  for (const TrainStep& s : trained_->runs[run].steps) out.push_back(s.loss);
  return out;
}

bool TrainResult::diverged() const {
  return std::ranges::any_of(trained_->runs, [](const RunRecord& r) { return r.outcome == Outcome::diverged; });
}

}  // namespace stepzero
