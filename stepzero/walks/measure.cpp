#include "stepzero/walks/measure.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/kernels/statistics.hpp"

namespace stepzero {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

// Moments leave out what is not finite; a signal that has any has no moments to speak of.
double unless_broken(const Moments& m, double value) { return m.nans + m.infs > 0 ? nan : value; }

// A value that does not exist for this shape (the cosine of a single token) stays absent.
void set_cosine(Value& value, const SignalStats& stats, const Batch& batch) {
  if (batch.length > 1) value.measured = stats.token_cosine;
}

std::string attention_name(const std::string& node) { return node.substr(0, node.rfind('.')); }

}  // namespace

Signal describe(const Graph& graph, const Architecture& a, const Batch& batch) {
  Signal signal;
  signal.architecture = a;
  signal.parameter_count = graph.parameter_count();
  signal.batch = batch.sequences;
  signal.seq_len = batch.length;
  for (std::size_t i = 0; i + 1 < graph.nodes.size(); ++i) {  // all but the loss
    const Node& node = graph.nodes[i];
    signal.nodes.push_back({.name = node.name, .kind = kind_of(node.op), .grade = "measured", .forward = {}, .backward = {}});
    if (std::holds_alternative<Attention>(node.op)) signal.attention.push_back({attention_name(node.name), {}, {}, {}});
  }
  for (const Param& p : graph.params) signal.parameters.push_back({p.name, p.shape, {}, {}, p.role, p.layer});
  return signal;
}

template <class S>
void measure_pass(Pass<S>& pass, const Graph& graph, const Batch& batch, Signal& signal, const std::function<void()>& tick) {
  std::size_t attention = 0;
  double total = 0;
  const Observer<S> observer{
      .forward =
          [&](int node, View<const S> y, View<const S> keep) {
            if (tick) tick();
            if (static_cast<std::size_t>(node) >= signal.nodes.size()) return;
            auto& to = signal.nodes[static_cast<std::size_t>(node)].forward;
            const SignalStats stats = signal_stats(y, batch.sequences, batch.length);
            to.second_moment.measured = unless_broken(stats.moments, stats.moments.second_moment());
            to.variance.measured = unless_broken(stats.moments, stats.moments.variance());
            to.mean.measured = unless_broken(stats.moments, stats.moments.mean);
            set_cosine(to.token_cosine, stats, batch);
            if (const auto* op = std::get_if<Attention>(&graph.nodes[static_cast<std::size_t>(node)].op)) {
              const AttentionSummary summary = op->summary(batch, keep);
              AttentionSignal& a = signal.attention[attention++];
              a.score_variance.measured = summary.score_variance;
              a.entropy.measured = summary.entropy;
              a.sum_squares.measured = summary.sum_squares;
            }
          },
      .backward =
          [&](int node, View<const S> dy) {
            if (tick) tick();
            if (static_cast<std::size_t>(node) >= signal.nodes.size()) return;
            auto& to = signal.nodes[static_cast<std::size_t>(node)].backward;
            const SignalStats stats = signal_stats(dy, batch.sequences, batch.length);
            to.norm.measured = unless_broken(stats.moments, std::sqrt(stats.moments.sum_squares()));
            to.second_moment.measured = unless_broken(stats.moments, stats.moments.second_moment());
            set_cosine(to.token_cosine, stats, batch);
          },
      .parameter =
          [&](int param, View<const S> dtheta) {
            const double squares = sum_squares(dtheta);
            total += squares;
            signal.parameters[static_cast<std::size_t>(param)].gradient_norm.measured = std::sqrt(squares);
          },
      .unmade =
          [&](int param, View<const S> rows, double rest) {
            const double squares = sum_squares(rows) + rest;
            total += squares;
            signal.parameters[static_cast<std::size_t>(param)].gradient_norm.measured = std::sqrt(squares);
          },
  };
  signal.loss.measured = pass.forward(observer);
  pass.backward(observer);
  signal.gradient_norm.measured = std::sqrt(total);
  fill_growth(signal, &Value::measured);
}

template void measure_pass(Pass<float>&, const Graph&, const Batch&, Signal&, const std::function<void()>&);
template void measure_pass(Pass<double>&, const Graph&, const Batch&, Signal&, const std::function<void()>&);

void Ensemble::add(const Signal& signal) {
  if (count_ == 0) first_ = signal;
  ++count_;
  std::size_t i = 0;
  for_each_value(signal, [&](const Value& value, Average average, const auto&, const char*) {
    if (running_.size() <= i) running_.emplace_back();
    Running& r = running_[i++];
    if (!value.measured) return;
    r.add(average == Average::mean ? *value.measured : *value.measured * *value.measured);
  });
}

Signal Ensemble::result() const {
  Signal signal = first_;
  signal.seeds = count_;
  std::size_t i = 0;
  for_each_value(signal, [&](Value& value, Average average, const auto&, const char*) {
    const Running& r = running_[i++];
    if (!value.measured) return;
    const double root = std::sqrt(r.mean);
    value.measured = average == Average::mean ? r.mean : root;
    // d sqrt(m) = dm / (2 sqrt(m))
    if (count_ > 1) value.standard_error = average == Average::mean ? r.error() : (root > 0 ? r.error() / (2 * root) : 0);
  });
  return signal;
}

double Ensemble::error() const {
  if (count_ < 8) return std::numeric_limits<double>::infinity();
  double largest = 0;
  const Signal now = result();
  const auto look = [&](const Value& v) {
    if (v.measured && *v.measured > 0) largest = std::max(largest, v.standard_error.value_or(0) / *v.measured);
  };
  look(now.gradient_norm);
  for (const NodeSignal& n : now.nodes) {
    look(n.forward.second_moment);
    look(n.backward.second_moment);
  }
  return largest;
}

std::optional<NotFinite> find_not_finite(const Signal& signal) {
  std::optional<NotFinite> first;
  const auto look = [&](const Value& value, const std::string& where, const char* what) {
    if (!first && value.measured && !std::isfinite(*value.measured)) first = {where, what};
  };
  for (const NodeSignal& n : signal.nodes) look(n.forward.second_moment, n.name, "the signal");
  for (const AttentionSignal& a : signal.attention) look(a.entropy, a.name, "the attention");
  look(signal.loss, "the loss", "the result");
  for (auto n = signal.nodes.rbegin(); n != signal.nodes.rend(); ++n) look(n->backward.norm, n->name, "the gradient");
  for_each_value(signal, [&](const Value& value, Average, const auto& where, const char* what) { look(value, std::string(where), what); });
  return first;
}

namespace {

Expected<void> check_memory(const Graph& graph, const Architecture& a, const Batch& batch, const PassOptions& options) {
  const double needed = Pass<float>::memory_needed(graph, batch, options);
  const auto available = static_cast<double>(available_memory());
  if (needed <= available) return {};
  const bool weightless = options.weightless != nullptr;
  return fail(fmt::format("{}: a {} pass needs about {:.1f} GB of memory, {:.1f} GB are available", show(a.name),
                          weightless ? "weightless" : "real", needed * 1e-9, available * 1e-9),
              weightless
                  ? "shorten --seq-len or --batch"
                  : "--weightless samples the pass without making the weights; or shorten --seq-len or --batch, or --set layers=...");
}

// One draw under way.
struct Draw {
  Weightless stand_ins;
  std::optional<Pass<float>> pass;
};

// Draws side by side while they leave half of the memory free: then no thread waits for another. Else one after the other,
// with all threads inside.
Index draws_at_once(int seeds, double bytes) {
  const double fit = 0.5 * static_cast<double>(available_memory()) / bytes;
  return fit < 2 ? 1 : std::min({static_cast<Index>(seeds), static_cast<Index>(threads()), static_cast<Index>(std::min(fit, 1e6))});
}

}  // namespace

Expected<Signal> measure(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options) {
  const auto distributions = options.scheme != nullptr ? distributions_of(graph, a, *options.scheme) : Assignment();
  for (std::size_t i = 0; options.weightless && i < graph.params.size(); ++i) {
    if (!distributions.structured(i)) continue;
    return fail(fmt::format("scheme {}: the numbers of \"{}\" depend on each other, --weightless needs independent ones",
                            options.scheme->name, show(graph.params[i].name)),
                "measure without --weightless");
  }
  const bool given = !options.weights.empty();
  const int seeds = given ? 1 : options.seeds;
  std::vector<std::unique_ptr<Draw>> draws;  // side by side
  draws.push_back(std::make_unique<Draw>());
  PassOptions pass_options{.checkpoint = options.weightless};
  if (options.weightless) {
    draws[0]->stand_ins = make_weightless(graph, batch, distributions, options.seed);
    pass_options.weightless = &draws[0]->stand_ins;
  }
  if (auto done = check_memory(graph, a, batch, pass_options); !done) return std::unexpected(done.error());
  while (std::ssize(draws) < draws_at_once(seeds, Pass<float>::memory_needed(graph, batch, pass_options))) {
    draws.push_back(std::make_unique<Draw>());
    draws.back()->stand_ins = draws[0]->stand_ins;
  }
  for (const auto& draw : draws) {
    if (options.weightless) pass_options.weightless = &draw->stand_ins;
    draw->pass.emplace(graph, batch, pass_options);
  }
  if (given) {
    auto file = CheckpointFiles::open(options.weights);
    if (!file) return std::unexpected(file.error());
    auto warnings = load_weights(*draws[0]->pass, graph, a, *file);
    if (!warnings) return std::unexpected(warnings.error());
    for (const std::string& warning : *warnings) {
      if (options.warn) options.warn(warning);
    }
  }
  const std::size_t steps = 2 * graph.nodes.size() * static_cast<std::size_t>(seeds);
  std::size_t ticks = 0;
  std::mutex mutex;
  const auto run = [&](Draw& draw, int s) {
    Signal signal = describe(graph, a, batch);
    signal.scheme = given ? "weights" : std::string(options.scheme->name);
    signal.seed = options.seed;
    signal.weightless = options.weightless;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(s);
    const Weightless* const weightless = options.weightless ? &draw.stand_ins : nullptr;
    if (weightless != nullptr) draw.stand_ins = make_weightless(graph, batch, distributions, seed);
    if (!given) draw_weights(*draw.pass, graph, a, *options.scheme, seed, weightless);
    for (std::size_t i = 0; weightless != nullptr && i < signal.nodes.size(); ++i) signal.nodes[i].grade = weightless->grade(graph, i);
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      if (weightless != nullptr && !weightless->params[i].made) {
        signal.parameters[i].std.measured = distributions.std(i);
        continue;
      }
      const Moments m = moments(View<const float>(draw.pass->weight(static_cast<int>(i))));
      signal.parameters[i].std.measured = unless_broken(m, m.std());
    }
    measure_pass(*draw.pass, graph, batch, signal, [&] {
      if (!options.progress) return;
      const std::scoped_lock lock(mutex);
      options.progress(static_cast<double>(++ticks) / static_cast<double>(steps));
    });
    return signal;
  };
  Ensemble ensemble;
  for (int done = 0; done < seeds;) {
    const int count = std::min(seeds - done, static_cast<int>(draws.size()));
    std::vector<Signal> signals(static_cast<std::size_t>(count));
    parallel_for(count, [&](Index i) {
      const auto k = static_cast<std::size_t>(i);
      signals[k] = run(*draws[k], done + static_cast<int>(i));
    });
    for (const Signal& signal : signals) {
      ensemble.add(signal);
      if (options.enough && options.enough(ensemble)) return ensemble.result();
    }
    done += count;
  }
  return ensemble.result();
}

}  // namespace stepzero
