#include "stepzero/walks/measure.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

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

}  // namespace

Expected<Signal> measure(const Graph& graph, const Architecture& a, const Batch& batch, const MeasureOptions& options) {
  Weightless stand_ins;
  const auto distributions = options.scheme != nullptr ? distributions_of(graph, a, *options.scheme) : Assignment();
  for (std::size_t i = 0; options.weightless && i < graph.params.size(); ++i) {
    if (!distributions.structured(i)) continue;
    return fail(fmt::format("scheme {}: the numbers of \"{}\" depend on each other, --weightless needs independent ones",
                            options.scheme->name, show(graph.params[i].name)),
                "measure without --weightless");
  }
  if (options.weightless) stand_ins = make_weightless(graph, batch, distributions, options.seed);
  const Weightless* const weightless = options.weightless ? &stand_ins : nullptr;
  const PassOptions pass_options{.checkpoint = options.weightless, .weightless = weightless};
  if (auto done = check_memory(graph, a, batch, pass_options); !done) return std::unexpected(done.error());
  Pass<float> pass(graph, batch, pass_options);
  const bool given = !options.weights.empty();
  if (given) {
    auto file = CheckpointFiles::open(options.weights);
    if (!file) return std::unexpected(file.error());
    auto warnings = load_weights(pass, graph, a, *file);
    if (!warnings) return std::unexpected(warnings.error());
    for (const std::string& warning : *warnings) {
      if (options.warn) options.warn(warning);
    }
  }
  Ensemble ensemble;
  const int seeds = given ? 1 : options.seeds;
  const std::size_t steps = 2 * graph.nodes.size() * static_cast<std::size_t>(seeds);
  std::size_t ticks = 0;
  for (int s = 0; s < seeds; ++s) {
    Signal signal = describe(graph, a, batch);
    signal.scheme = given ? "weights" : std::string(options.scheme->name);
    signal.seed = options.seed;
    signal.weightless = options.weightless;
    const std::uint64_t seed = options.seed + static_cast<std::uint64_t>(s);
    if (weightless != nullptr) stand_ins = make_weightless(graph, batch, distributions, seed);
    if (!given) draw_weights(pass, graph, a, *options.scheme, seed, weightless);
    for (std::size_t i = 0; weightless != nullptr && i < signal.nodes.size(); ++i) signal.nodes[i].grade = weightless->grade(graph, i);
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      if (weightless != nullptr && !weightless->params[i].made) {
        signal.parameters[i].std.measured = distributions.std(i);
        continue;
      }
      const Moments m = moments(View<const float>(pass.weight(static_cast<int>(i))));
      signal.parameters[i].std.measured = unless_broken(m, m.std());
    }
    measure_pass(pass, graph, batch, signal, [&] {
      ++ticks;
      if (options.progress) options.progress(static_cast<double>(ticks) / static_cast<double>(steps), s);
    });
    ensemble.add(signal);
    if (options.enough && options.enough(ensemble)) break;
  }
  return ensemble.result();
}

}  // namespace stepzero
