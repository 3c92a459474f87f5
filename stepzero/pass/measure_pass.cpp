#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "stepzero/graph/questions.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero {

namespace {

// A value that does not exist for this shape (the cosine of a single token) stays absent.
void set_cosine(Value& value, const SignalStats& stats, Index length) {
  if (length > 1) value.measured = stats.token_cosine;
}

// Takes the next rows of a node; its statistics once all have been seen.
template <class S>
std::optional<SignalStats> take(std::unique_ptr<SignalScan<S>>& scan, View<const S> x, Index sequences, Index length) {
  if (!scan) scan = std::make_unique<SignalScan<S>>(sequences, length, x.cols);
  scan->add(x);
  if (!scan->complete()) return {};
  const SignalStats stats = scan->finish();
  scan.reset();
  return stats;
}

}  // namespace

double unless_broken(const Moments& m, double value) { return m.nans + m.infs > 0 ? std::numeric_limits<double>::quiet_NaN() : value; }

template <class S>
void measure_pass(Pass<S>& pass, const Graph& graph, const Batch& batch, Signal& signal, const std::function<void()>& tick,
                  const Observer<S>& more) {
  const std::vector<Index> rows = graph.rows(batch);
  std::vector<std::unique_ptr<SignalScan<S>>> down(rows.size()), up(rows.size());
  std::size_t attention = 0;
  double total = 0;
  const Observer<S> observer{
      .forward =
          [&](int node, View<const S> y, View<const S> keep) {
            const auto i = static_cast<std::size_t>(node);
            const Index length = rows[i] / batch.sequences;
            const auto stats = take(down[i], y, batch.sequences, length);
            if (!stats) return;
            if (tick) tick();
            if (i >= signal.nodes.size()) return;
            auto& to = signal.nodes[i].forward;
            to.second_moment.measured = unless_broken(stats->moments, stats->moments.second_moment());
            to.variance.measured = unless_broken(stats->moments, stats->moments.variance());
            to.mean.measured = unless_broken(stats->moments, stats->moments.mean);
            set_cosine(to.token_cosine, *stats, length);
            if (const auto summary = summary_of(graph.nodes[i].op, batch, keep)) {
              AttentionSignal& a = signal.attention[attention++];
              a.score_variance.measured = summary->score_variance;
              a.entropy.measured = summary->entropy;
              a.sum_squares.measured = summary->sum_squares;
            }
          },
      .backward =
          [&](int node, View<const S> dy) {
            if (more.backward) more.backward(node, dy);
            const auto i = static_cast<std::size_t>(node);
            const Index length = rows[i] / batch.sequences;
            const auto stats = take(up[i], dy, batch.sequences, length);
            if (!stats) return;
            if (tick) tick();
            if (i >= signal.nodes.size()) return;
            auto& to = signal.nodes[i].backward;
            to.norm.measured = unless_broken(stats->moments, std::sqrt(stats->moments.sum_squares()));
            to.second_moment.measured = unless_broken(stats->moments, stats->moments.second_moment());
            set_cosine(to.token_cosine, *stats, length);
          },
      .parameter =
          [&](int param, View<const S> dtheta) {
            if (more.parameter) more.parameter(param, dtheta);
            const double squares = sum_squares(dtheta);
            total += squares;
            signal.parameters[static_cast<std::size_t>(param)].gradient_norm.measured = std::sqrt(squares);
          },
      .unmade =
          [&](int param, View<const S> explicit_rows, double rest) {
            if (more.unmade) more.unmade(param, explicit_rows, rest);
            const double squares = sum_squares(explicit_rows) + rest;
            total += squares;
            signal.parameters[static_cast<std::size_t>(param)].gradient_norm.measured = std::sqrt(squares);
          },
  };
  signal.loss.measured = pass.forward(observer);
  pass.backward(observer);
  signal.gradient_norm.measured = std::sqrt(total);
  fill_growth(signal, &Value::measured);
}

template void measure_pass(Pass<float>&, const Graph&, const Batch&, Signal&, const std::function<void()>&, const Observer<float>&);
template void measure_pass(Pass<double>&, const Graph&, const Batch&, Signal&, const std::function<void()>&, const Observer<double>&);

}  // namespace stepzero
