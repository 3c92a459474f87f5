#include "stepzero/train/train.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include <fmt/format.h>

#include "stepzero/core/memory.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero {

namespace {

namespace fs = std::filesystem;

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string state_in(const std::string& directory) { return (fs::path(directory) / "state.safetensors").string(); }

// One run from its weights to its record.
class Runner {
 public:
  Runner(const TrainPlan& plan, int index)
      : plan_(plan),
        index_(index),
        contender_(plan.contenders[static_cast<std::size_t>(index / plan.seeds)]),
        batch_(plan.feed->shape()),
        held_(plan.feed->shape()),
        run_(*contender_.graph, batch_, plan.options,
             [this](int update, int part) { plan_.feed->fill(batch_, record_.seed, update, part); }) {
    record_.scheme = contender_.scheme;
    record_.seed = plan.seed + static_cast<std::uint64_t>(index % plan.seeds);
  }

  // Weights, and what a state of before says of them.
  Expected<void> begin(const WeightMaker& stored) {
    const Graph& graph = *contender_.graph;
    const WeightMaker drawn = drawn_weights(graph, *contender_.laws, record_.seed);
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      const WeightMaker& make = stored && !graph.params[i].is_adapter() ? stored : drawn;
      if (auto done = make(i, run_.pass().weight(static_cast<int>(i))); !done) return done;
    }
    if (!plan_.resume || !fs::exists(state_in(directory()))) return {};
    const std::uint64_t seed = record_.seed;
    if (auto done = load_state(state_in(directory()), graph, run_, record_, settings()); !done) return done;
    record_.seed = seed;
    return {};
  }

  Expected<RunRecord> train(std::mutex& telling) {
    start_ = now();
    first_ = run_.updates();
    while (run_.updates() < plan_.steps) {
      end_if_stopped();
      if (auto done = pause(); !done) return std::unexpected(done.error());
      if (reached_) break;
      record_.steps.push_back(run_.step());
      if (run_.over() || is_lost(record_.steps)) break;
      const std::scoped_lock lock(telling);
      if (plan_.progress) plan_.progress(record_, index_, speed());
    }
    if (auto done = end(); !done) return std::unexpected(done.error());
    return record_;
  }

 private:
  [[nodiscard]] std::string directory() const { return plan_.save.empty() ? "" : directory_of(plan_, index_); }
  [[nodiscard]] RunSettings settings() const {
    RunSettings settings = contender_.settings;
    settings["seed"] = record_.seed;
    return settings;
  }
  [[nodiscard]] double speed() const {
    const double updates = run_.updates() - first_;
    return updates * static_cast<double>(batch_.tokens()) * plan_.options.accumulate / (now() - start_ - paused_);
  }
  [[nodiscard]] int every(int told) const { return told > 0 ? told : std::max(1, plan_.steps / 10); }

  // What is done between updates: a state, the held-out loss, a look at every wire.
  Expected<void> pause() {
    const double begun = now();
    const int step = run_.updates();
    const bool fresh = step == 0 || step > first_;  // a state was saved behind all of it
    if (fresh && std::ranges::find(plan_.watch, step) != plan_.watch.end()) watch(step);
    if (fresh && step % every(plan_.validate_every) == 0) validate(step);
    if (plan_.until > 0 && held_loss() <= plan_.until) reached_ = true;
    if (step > first_ && step % every(plan_.save_every > 0 ? plan_.save_every : plan_.validate_every) == 0) {
      if (auto done = save(); !done) return done;
    }
    paused_ += now() - begun;
    return {};
  }

  [[nodiscard]] double held_loss() const {
    if (plan_.feed->held_out() > 0) return record_.validation.empty() ? INFINITY : record_.validation.back().loss;
    return record_.steps.size() < 10 ? INFINITY : last_loss({record_.steps.end() - 10, record_.steps.end()});
  }

  void validate(int step) {
    const int batches = plan_.feed->held_out();
    if (batches == 0) return;
    double sum = 0;
    std::swap(batch_, held_);
    for (int k = 0; k < batches; ++k) {
      end_if_stopped();
      plan_.feed->fill_held_out(batch_, k);
      sum += run_.pass().forward();
    }
    std::swap(batch_, held_);
    record_.validation.push_back({step, sum / batches});
  }

  void watch(int step) {
    Signal signal = describe(*contender_.graph, *contender_.architecture, batch_);
    plan_.feed->fill(batch_, record_.seed, run_.updates(), 0);
    measure_pass(run_.pass(), *contender_.graph, batch_, signal);
    Watched seen{.step = step};
    const auto number = [](const Value& v) { return v.measured.value_or(NAN); };
    for (const NodeSignal& n : signal.nodes) {
      if (!place_of(n.name).is_stream()) continue;
      seen.streams.push_back({n.name, number(n.forward.second_moment), number(n.forward.token_cosine), number(n.backward.norm)});
    }
    for (const AttentionSignal& a : signal.attention) seen.attention.push_back({a.name, number(a.score_variance), number(a.entropy)});
    record_.watched.push_back(std::move(seen));
  }

  Expected<void> save() {
    if (plan_.save.empty()) return {};
    return save_state(state_in(directory()), *contender_.graph, run_, record_, settings());
  }

  Expected<void> end() {
    const int step = run_.updates();
    record_.tokens_per_second = speed();
    if (!run_.over() && !is_lost(record_.steps)) {
      const auto seen = [step](const auto& list) { return !list.empty() && list.back().step == step; };
      if (!plan_.watch.empty() && !seen(record_.watched)) watch(step);
      if (!seen(record_.validation)) validate(step);
      if (auto done = save(); !done) return done;  // more steps may be asked for later
      record_.steps.push_back(run_.look());
    }
    if (run_.over()) record_.where = run_.where();
    record_.outcome = run_.over() ? Outcome::diverged : judge(record_.steps);
    return plan_.save.empty() || run_.over() ? Expected<void>() : save_weights();
  }

  Expected<void> save_weights() {
    std::vector<TensorData> tensors;
    bool adapters = false;
    for (std::size_t i = 0; i < contender_.graph->params.size(); ++i) {
      const Param& p = contender_.graph->params[i];
      adapters = adapters || p.is_adapter();
      if (p.frozen) continue;
      const View<float> w = run_.pass().weight(static_cast<int>(i));
      tensors.push_back({p.name, {p.shape.begin(), p.shape.end()}, std::span<const float>(w.data, static_cast<std::size_t>(w.size()))});
    }
    return write_safetensors((fs::path(directory()) / (adapters ? "adapter_model.safetensors" : "model.safetensors")).string(), tensors,
                             {{"format", "pt"}, {"stepzero.trained", fmt::format("{} updates", run_.updates())}}, true);
  }

  const TrainPlan& plan_;
  int index_;
  const Contender& contender_;
  Batch batch_, held_;
  RunRecord record_;
  TrainRun<float> run_;
  double start_ = 0, paused_ = 0;
  int first_ = 0;  // updates that were made before
  bool reached_ = false;
};

class Training {
 public:
  explicit Training(const TrainPlan& plan) : plan_(plan), count_(static_cast<int>(plan.contenders.size()) * plan.seeds) {}

  Expected<std::vector<RunRecord>> run() {
    const auto own = plan_.team.share(run_own());
    if (!own) return std::unexpected(own.error());
    std::vector<RunRecord> all(static_cast<std::size_t>(count_));
    for (int rank = 0; rank < plan_.team.size; ++rank) {
      const auto parts = nlohmann::json::parse((*own)[static_cast<std::size_t>(rank)]);
      for (std::size_t k = 0; k < parts.size(); ++k) {
        auto record = record_from(parts[k], "another process");
        if (!record) return std::unexpected(record.error());
        all[static_cast<std::size_t>(rank) + k * static_cast<std::size_t>(plan_.team.size)] = std::move(*record);
      }
    }
    return all;
  }

 private:
  // The runs of this process, as JSON.
  Expected<std::string> run_own() {
    if (auto done = prepare(); !done) return std::unexpected(done.error());
    std::vector<int> mine;
    for (int i = plan_.team.rank; i < count_; i += plan_.team.size) mine.push_back(i);
    std::vector<std::optional<Expected<RunRecord>>> records(mine.size());
    const auto one = [&](Index k) {
      const auto slot = static_cast<std::size_t>(k);
      Runner runner(plan_, mine[slot]);
      const auto begun = runner.begin(stored_);
      records[slot] = begun ? runner.train(telling_) : Expected<RunRecord>(std::unexpected(begun.error()));
    };
    if (std::ssize(mine) >= 2 && side_by_side() >= threads()) {
      parallel_for(std::ssize(mine), one);
    } else {
      for (Index k = 0; k < std::ssize(mine); ++k) one(k);
    }
    nlohmann::ordered_json out = nlohmann::ordered_json::array();
    for (const auto& record : records) {
      if (!*record) return std::unexpected(record->error());
      out.push_back(to_json(**record));
    }
    return out.dump();
  }

  // How many runs fit into half of the memory.
  [[nodiscard]] Index side_by_side() const {
    return static_cast<Index>(std::min(1e6, 0.5 * static_cast<double>(available_memory()) / memory_of_one()));
  }
  [[nodiscard]] double memory_of_one() const {
    double most = 0;
    for (const Contender& c : plan_.contenders) {
      most = std::max(most, TrainRun<float>::memory_needed(*c.graph, plan_.feed->shape(), plan_.options));
    }
    return most;
  }

  Expected<void> prepare() {
    const auto available = static_cast<double>(available_memory());
    if (memory_of_one() > available) {
      return fail(
          fmt::format("training needs about {:.1f} GB of memory, {:.1f} GB are available", memory_of_one() * 1e-9, available * 1e-9),
          "a smaller --batch or --seq-len, or --set layers=... and width=...");
    }
    if (!plan_.weights.empty()) {
      if (auto done = open_weights(); !done) return done;
    }
    for (int i = 0; !plan_.save.empty() && i < count_; ++i) {
      const std::string directory = directory_of(plan_, i);
      std::error_code error;
      if (!plan_.resume && fs::exists(state_in(directory), error)) {
        return fail(fmt::format("{}: a run was saved there", show(directory)), "--resume goes on with it; or --save another directory");
      }
      make_directories(directory, error);
      if (error) return fail(fmt::format("{}: cannot make the directory: {}", show(directory), error.message()));
      const Contender& contender = plan_.contenders[static_cast<std::size_t>(i / plan_.seeds)];
      if (auto done = write_file((fs::path(directory) / contender.config_name).string(), contender.config); !done) return done;
      if (plan_.tokenizer.empty()) continue;
      if (auto done = write_file((fs::path(directory) / "tokenizer.json").string(), plan_.tokenizer); !done) return done;
    }
    return {};
  }

  Expected<void> open_weights() {
    auto file = CheckpointFiles::open(plan_.weights);
    if (!file) return std::unexpected(file.error());
    file_ = std::move(*file);
    std::vector<std::string> warnings;
    auto maker = stored_weights(*plan_.contenders[0].graph, *plan_.contenders[0].architecture, *file_, warnings);
    if (!maker) return std::unexpected(maker.error());
    stored_ = std::move(*maker);
    for (const std::string& warning : warnings) {
      if (plan_.warn) plan_.warn(warning);
    }
    return {};
  }

  const TrainPlan& plan_;
  int count_;
  std::mutex telling_;
  std::optional<CheckpointFiles> file_;
  WeightMaker stored_;
};

}  // namespace

std::string directory_of(const TrainPlan& plan, int run) {
  const bool schemes = plan.contenders.size() > 1;
  if (!schemes && plan.seeds == 1) return plan.save;
  const auto seed = plan.seed + static_cast<std::uint64_t>(run % plan.seeds);
  const std::string name = fmt::format("seed-{}", seed);
  return (fs::path(plan.save) /
          (schemes ? fmt::format("{}-{}", plan.contenders[static_cast<std::size_t>(run / plan.seeds)].scheme, name) : name))
      .string();
}

Expected<std::vector<RunRecord>> train(const TrainPlan& plan) { return Training(plan).run(); }

}  // namespace stepzero
