#include "stepzero/pass/measure.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/weights/adapter.hpp"

namespace stepzero {

namespace {

// Bytes of wires that a streamed pass keeps instead of making them again: about those of a large tensor and its gradient.
constexpr double wires_kept = 1.5e9;

double gigabytes(double bytes) { return bytes * 1e-9; }

double memory_for(const MeasureOptions& options) { return options.memory > 0 ? options.memory : static_cast<double>(available_memory()); }

bool steps(const MeasureOptions& options) { return options.step.steps > 0; }

double memory_needed(const Graph& graph, const Batch& batch, const MeasureOptions& options, const PassOptions& how) {
  if (!steps(options)) return Pass<float>::memory_needed(graph, batch, how);
  return how.weightless != nullptr ? WeightlessSteps::memory_needed(graph, batch, *how.weightless)
                                   : RealSteps::memory_needed(graph, batch, options.step);
}

Error too_large(const Architecture& a, const MeasureOptions& options, double needed, double available) {
  const char* kind = options.weightless ? "weightless pass" : steps(options) ? "pass with steps" : "streamed pass";
  return {.message = fmt::format("{}: a {} needs about {:.1f} GB of memory, {:.1f} GB are available", show(a.name), kind, gigabytes(needed),
                                 gigabytes(available)),
          .hint = options.weightless
                      ? "shorten --seq-len or --batch"
                      : "--weightless samples the pass without making the weights; or shorten --seq-len or --batch, or --set layers=..."};
}

// Streamed if asked for, or if all weights do not fit into memory. An error if a streamed pass does not fit either. Steps want every
// wire, and the whole gradients of what is there.
Expected<PassOptions> choose(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options,
                             const Weightless* stand_ins) {
  PassOptions how{.checkpoint = options.weightless, .head_rows = measured_head_rows, .norms = !options.weightless, .weightless = stand_ins};
  if (steps(options)) how = {.checkpoint = options.weightless, .keep_cuts = options.weightless, .weightless = stand_ins};
  const double available = memory_for(options);
  const double whole = memory_needed(graph, batch, options, how);
  if (!options.weightless && !steps(options) && (options.stream || whole > available)) {
    how = {.checkpoint = true, .keep_bytes = wires_kept, .stream = true, .head_rows = measured_head_rows, .norms = true};
  }
  const double needed = memory_needed(graph, batch, options, how);
  if (needed > available) return std::unexpected(too_large(a, options, needed, available));
  if (how.stream && !options.stream && options.note) {
    options.note(
        fmt::format("all weights at once need {:.1f} GB of memory, {:.1f} GB are available: one tensor is made at a time, and again "
                    "on the way up (--stream), with about {:.1f} GB",
                    gigabytes(whole), gigabytes(available), gigabytes(needed)));
  }
  return how;
}

// One draw under way.
struct Draw {
  Weightless stand_ins;
  std::optional<Pass<float>> pass;
};

// The first error among all that threads report.
class FirstError {
 public:
  void add(const Expected<void>& done) {
    const std::scoped_lock lock(mutex_);
    if (!done && !error_) error_ = done.error();
  }
  [[nodiscard]] const std::optional<Error>& get() const { return error_; }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
};

// Gives the pass its weights, or the means to make them, and the signal their standard deviations.
void give_weights(Pass<float>& pass, bool stream, const WeightMaker& make, Signal& signal, FirstError& broken) {
  const auto make_and_look = [&signal, &broken, make](int param, View<float> w) {
    const auto i = static_cast<std::size_t>(param);
    broken.add(make(i, w));
    if (signal.parameters[i].std.measured) return;                            // made again on the way up
    const Moments m = signal_stats(View<const float>(w), w.rows, 1).moments;  // those of moments(w), faster
    signal.parameters[i].std.measured = unless_broken(m, m.std());
  };
  if (stream) return pass.stream(make_and_look);
  for (int i = 0; i < static_cast<int>(signal.parameters.size()); ++i) make_and_look(i, pass.weight(i));
}

// The explicit rows of a weightless pass; the rest of it has its standard deviations by law. `adapters` makes theirs, where they are given.
void give_rows(Draw& draw, const Graph& graph, const Assignment& laws, std::uint64_t seed, const WeightMaker& adapters, Signal& signal,
               FirstError& broken) {
  draw_weights(*draw.pass, graph, laws, seed, &draw.stand_ins);
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    if (adapters && graph.params[i].is_adapter()) broken.add(adapters(i, draw.pass->weight(static_cast<int>(i))));
    const Moments m = moments(View<const float>(draw.pass->weight(static_cast<int>(i))));
    signal.parameters[i].std.measured = draw.stand_ins.params[i].made ? unless_broken(m, m.std()) : laws.std(i);
  }
  for (std::size_t i = 0; i < signal.nodes.size(); ++i) signal.nodes[i].grade = draw.stand_ins.grade(graph, i);
}

// A value as it travels to the other members of a team.
struct Cell {
  double there, value;
};

std::string pack(const Signal& signal) {
  std::string bytes;
  for_each_value(signal, [&](const Value& value, Average, const auto&, const char*) {
    const Cell cell{value.measured ? 1.0 : 0.0, value.measured.value_or(0)};
    bytes.append(reinterpret_cast<const char*>(&cell), sizeof cell);
  });
  return bytes;
}

// Reads one signal from the front of `bytes`, and removes it there.
Signal unpack(Signal signal, std::string_view& bytes) {
  for_each_value(signal, [&](Value& value, Average, const auto&, const char*) {
    Cell cell{};
    STEPZERO_CHECK(bytes.size() >= sizeof cell);
    std::memcpy(&cell, bytes.data(), sizeof cell);
    bytes.remove_prefix(sizeof cell);
    if (cell.there != 0) value.measured = cell.value;
  });
  return signal;
}

class Measurement {
 public:
  Measurement(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options)
      : graph_(graph),
        architecture_(a),
        batch_(batch),
        options_(options),
        laws_(options.scheme != nullptr ? distributions_of(graph, a, *options.scheme) : Assignment()),
        seeds_(nothing_drawn() ? 1 : options.seeds) {}

  // Finds the weights, and makes room for as many draws at once as there is memory for: the same number for the whole team.
  Expected<void> prepare() {
    const auto counts = options_.team.share(find_room());
    if (!counts) return std::unexpected(counts.error());
    Index side_by_side = std::stoll(counts->front());
    for (const std::string& other : *counts) side_by_side = std::min<Index>(side_by_side, std::stoll(other));
    while (std::ssize(draws_) < side_by_side) {
      draws_.push_back(std::make_unique<Draw>());
      draws_.back()->stand_ins = draws_[0]->stand_ins;
    }
    for (const auto& draw : draws_) {
      if (options_.weightless) how_.weightless = &draw->stand_ins;
      draw->pass.emplace(graph_, batch_, how_);
    }
    return {};
  }

  Expected<Signal> run() {
    Ensemble ensemble;
    while (ensemble.count() < seeds_) {
      const auto signals = round(ensemble.count());
      if (!signals) return std::unexpected(signals.error());
      for (const Signal& signal : *signals) {
        ensemble.add(signal);
        if (options_.enough && options_.enough(ensemble)) return ensemble.result();
      }
    }
    return ensemble.result();
  }

 private:
  // How many draws could run at once here.
  Expected<std::string> find_room() {
    for (std::size_t i = 0; options_.weightless && i < graph_.params.size(); ++i) {
      const Param& p = graph_.params[i];
      const bool made = p.role == Role::bias || p.role == Role::branch_gain || p.frozen;  // as in any pass
      if (made || !laws_.structured(i)) continue;
      return fail(fmt::format("scheme {}: the numbers of \"{}\" depend on each other, --weightless needs independent ones",
                              options_.scheme->name, show(p.name)),
                  "measure without --weightless");
    }
    for (const bool adapters : {false, true}) {
      if ((adapters ? options_.adapter : options_.weights).empty()) continue;
      if (auto done = open_weights(adapters); !done) return std::unexpected(done.error());
    }
    draws_.push_back(std::make_unique<Draw>());
    if (options_.weightless) draws_[0]->stand_ins = make_weightless(graph_, batch_, laws_, options_.seed);
    if (auto done = check_steps(); !done) return std::unexpected(done.error());
    const auto how = choose(graph_, architecture_, batch_, options_, options_.weightless ? &draws_[0]->stand_ins : nullptr);
    if (!how) return std::unexpected(how.error());
    how_ = *how;
    return fmt::format("{}", draws_at_once());
  }

  Expected<void> check_steps() const {
    if (!steps(options_)) return {};
    if (options_.stream) return fail("steps change the weights: they are not made again (--stream)", "measure without --stream");
    if (!options_.weightless) return {};
    if (options_.step.steps > 1) {
      return fail(fmt::format("{} steps: --weightless knows the first alone", options_.step.steps), "measure without --weightless");
    }
    return check_weightless_step(graph_, draws_[0]->stand_ins, options_.step);
  }

  // Those of the model, or of its adapters, in a file.
  Expected<void> open_weights(bool adapters) {
    auto& file = adapters ? adapter_file_ : file_;
    auto opened = adapters ? open_adapter(options_.adapter) : CheckpointFiles::open(options_.weights);
    if (!opened) return std::unexpected(opened.error());
    file = std::move(*opened);
    std::vector<std::string> warnings;
    auto maker =
        adapters ? adapter_weights(graph_, architecture_, *file, warnings) : stored_weights(graph_, architecture_, *file, warnings);
    if (!maker) return std::unexpected(maker.error());
    (adapters ? stored_adapter_ : stored_) = std::move(*maker);
    for (const std::string& warning : warnings) {
      if (options_.warn) options_.warn(warning);
    }
    return {};
  }

  [[nodiscard]] bool nothing_drawn() const {
    const bool adapters = std::ranges::any_of(graph_.params, &Param::is_adapter);
    return !options_.weights.empty() && (!adapters || !options_.adapter.empty());
  }

  // Each parameter from where it comes from: the model's file, the adapter's file, or a draw.
  [[nodiscard]] WeightMaker weights_of(std::uint64_t seed) const {
    const WeightMaker drawn = drawn_weights(graph_, laws_, seed, options_.dtype);
    return [this, drawn](std::size_t param, View<float> w) {
      const WeightMaker& stored = graph_.params[param].is_adapter() ? stored_adapter_ : stored_;
      return stored ? stored(param, w) : drawn(param, w);
    };
  }

  // Draws run side by side, a thread each, while they leave half of the memory free: no thread then waits for another. Else, and where
  // memory was to be saved, one after the other, each on all threads.
  [[nodiscard]] Index draws_at_once() const {
    const double fit = 0.5 * memory_for(options_) / memory_needed(graph_, batch_, options_, how_);
    if (how_.stream || fit < 2) return 1;
    return std::min({static_cast<Index>(seeds_), static_cast<Index>(threads()), static_cast<Index>(std::min(fit, 1e6))});
  }

  // The next draws of all members, in the order of their seeds.
  Expected<std::vector<Signal>> round(int done) {
    const Team& team = options_.team;
    const int each = static_cast<int>(draws_.size());
    const int first = done + team.rank * each;
    const int count = std::clamp(seeds_ - first, 0, each);
    std::vector<Signal> own(static_cast<std::size_t>(count));
    parallel_for(count, [&](Index i) {
      const auto k = static_cast<std::size_t>(i);
      own[k] = run_draw(*draws_[k], options_.seed + static_cast<std::uint64_t>(first + i));
    });
    Expected<std::string> bytes;
    if (broken_.get()) bytes = std::unexpected(*broken_.get());
    for (const Signal& signal : own) {
      if (bytes) *bytes += pack(signal);
    }
    const auto parts = team.share(bytes);
    if (!parts) return std::unexpected(parts.error());
    std::vector<Signal> all;
    for (int rank = 0; rank < team.size; ++rank) {
      if (rank == team.rank) all.insert(all.end(), own.begin(), own.end());
      std::string_view rest = rank == team.rank ? std::string_view() : (*parts)[static_cast<std::size_t>(rank)];
      while (!rest.empty()) all.push_back(unpack(blank(), rest));
    }
    return all;
  }

  // What a draw fills in, for one that comes from another process.
  [[nodiscard]] Signal blank() const {
    Signal signal = describe(graph_, architecture_, batch_);
    for (int k = 0; k < options_.step.steps; ++k) signal.steps.push_back(describe_step(graph_, signal));
    for (const double factor :
         options_.weightless || signal.steps.empty() || !options_.step.search ? std::vector<double>() : searched_rates()) {
      signal.steps[0].rates.push_back({.rate = factor * options_.step.optimizer.rate.value_or(0)});
    }
    return signal;
  }

  Signal run_draw(Draw& draw, std::uint64_t seed) {
    Signal signal = describe(graph_, architecture_, batch_);
    signal.scheme = file_ ? "weights" : std::string(options_.scheme->name);
    signal.seed = options_.seed;
    signal.weightless = options_.weightless;
    if (steps(options_)) signal.optimizer = described(options_.step.optimizer);
    if (options_.weightless) {
      draw.stand_ins = make_weightless(graph_, batch_, laws_, seed);
      give_rows(draw, graph_, laws_, seed, stored_adapter_, signal, broken_);
    } else {
      give_weights(*draw.pass, how_.stream, weights_of(seed), signal, broken_);
    }
    run_pass(draw, signal);
    return signal;
  }

  void run_pass(Draw& draw, Signal& signal) {
    const auto done = [&] { tick(); };
    const auto with = [&](auto&& walk) {
      measure_pass(*draw.pass, graph_, batch_, signal, done, walk.observer());
      walk.run(*draw.pass, signal, done);
    };
    if (!steps(options_)) return measure_pass(*draw.pass, graph_, batch_, signal, done);
    if (options_.weightless) return with(WeightlessSteps(graph_, batch_, options_.step, draw.stand_ins, *draw.pass));
    with(RealSteps(graph_, batch_, options_.step));
  }

  void tick() {
    if (!options_.progress) return;
    const auto ways = 2 * graph_.nodes.size() + static_cast<std::size_t>(options_.step.steps) * graph_.nodes.size();
    const auto all = ways * static_cast<std::size_t>(seeds_);
    const std::scoped_lock lock(mutex_);
    ticks_ += static_cast<std::size_t>(options_.team.size);  // the others are about as far
    options_.progress(std::min(1.0, static_cast<double>(ticks_) / static_cast<double>(all)));
  }

  const Graph& graph_;
  const Architecture& architecture_;
  const Batch& batch_;
  const MeasureOptions& options_;
  Assignment laws_;
  int seeds_;
  std::optional<CheckpointFiles> file_, adapter_file_;
  WeightMaker stored_, stored_adapter_;       // empty: drawn
  std::vector<std::unique_ptr<Draw>> draws_;  // side by side
  PassOptions how_;
  FirstError broken_;
  std::mutex mutex_;
  std::size_t ticks_ = 0;
};

}  // namespace

Expected<Signal> measure(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options) {
  Measurement measurement(graph, a, batch, options);
  if (auto done = measurement.prepare(); !done) return std::unexpected(done.error());
  return measurement.run();
}

}  // namespace stepzero
