#include <cmath>
#include <limits>

#include "stepzero/kernels/statistics.hpp"
#include "stepzero/walks/measure.hpp"

namespace stepzero {

namespace {

// A value that does not exist for this shape (the cosine of a single token) stays absent.
void set_cosine(Value& value, const SignalStats& stats, Index length) {
  if (length > 1) value.measured = stats.token_cosine;
}

std::string attention_name(const std::string& node) { return node.substr(0, node.rfind('.')); }

}  // namespace

double unless_broken(const Moments& m, double value) { return m.nans + m.infs > 0 ? std::numeric_limits<double>::quiet_NaN() : value; }

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
            const Index length = y.rows / batch.sequences;
            const SignalStats stats = signal_stats(y, batch.sequences, length);
            to.second_moment.measured = unless_broken(stats.moments, stats.moments.second_moment());
            to.variance.measured = unless_broken(stats.moments, stats.moments.variance());
            to.mean.measured = unless_broken(stats.moments, stats.moments.mean);
            set_cosine(to.token_cosine, stats, length);
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
            const Index length = dy.rows / batch.sequences;
            const SignalStats stats = signal_stats(dy, batch.sequences, length);
            to.norm.measured = unless_broken(stats.moments, std::sqrt(stats.moments.sum_squares()));
            to.second_moment.measured = unless_broken(stats.moments, stats.moments.second_moment());
            set_cosine(to.token_cosine, stats, length);
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

}  // namespace stepzero
