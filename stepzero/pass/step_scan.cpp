#include "stepzero/pass/step_scan.hpp"

#include <cmath>

#include "stepzero/graph/questions.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/pass/pass_plan.hpp"

namespace stepzero {

double MeanSquare::root() const { return std::sqrt(squares / entries); }

namespace {

// Sum of squares of a - b, each row in double.
template <class S>
double squared_distance(View<const S> a, View<const S> b) {
  std::vector<double> rows(static_cast<std::size_t>(a.rows));
  parallel_ranges(a.rows, row_grain(a.cols), [&](Index t0, Index t1) {
    for (Index t = t0; t < t1; ++t) {
      const S *x = a.row(t), *y = b.row(t);
      rows[static_cast<std::size_t>(t)] = row_sum<double>(a.cols, [&](Index c) {
        const double d = static_cast<double>(x[c]) - static_cast<double>(y[c]);
        return d * d;
      });
    }
  });
  double sum = 0;
  for (const double row : rows) sum += row;
  return sum;
}

bool is_met_again(const Weightless* again, std::size_t node) {
  return again != nullptr && !std::holds_alternative<std::monostate>(again->nodes[node]) &&
         !std::holds_alternative<SeenEmbedding>(again->nodes[node]);
}

}  // namespace

template <class S>
double score_change(const Attention& op, const Batch& batch, std::span<const View<const S>> before, std::span<const View<const S>> after) {
  const Index queries = before[0].rows / batch.sequences, length = before[1].rows / batch.sequences;
  const Index group = op.heads / op.kv_heads, items = batch.sequences * op.heads;
  std::vector<MeanSquare> parts(static_cast<std::size_t>(items));
  parallel_for(items, [&](Index item) {
    const Index b = item / op.heads, h = item % op.heads;
    constexpr Index block = 64;  // queries at once
    Tensor<S> s(block, length), d(block, length);
    for (Index i0 = 0; i0 < queries; i0 += block) {
      const Index rows = std::min(block, queries - i0);
      const auto scores = [&](std::span<const View<const S>> x, S sign, S beta, Tensor<S>& to) {
        gemm(Trans::no, Trans::yes, sign * S(op.scale), x[0].block(b * queries + i0, rows, h * op.key_dim, op.key_dim),
             x[1].block(b * length, length, h / group * op.key_dim, op.key_dim), beta, to.view().slice(0, rows));
      };
      scores(after, S(1), S(0), s);
      scores(before, S(1), S(0), d);
      for (Index r = 0; r < rows; ++r) {
        const auto see = op.visible(i0 + r, length);
        double sum = 0;
        for (Index j = see.begin; j < see.end; ++j) {
          const double change = static_cast<double>(s(r, j)) - static_cast<double>(d(r, j));
          sum += change * change;
        }
        parts[static_cast<std::size_t>(item)].add(sum, static_cast<double>(see.end - see.begin));
      }
    }
  });
  MeanSquare all;
  for (const MeanSquare& part : parts) all.add(part.squares, part.entries);
  return all.root();
}

template <class S>
void StepScan<S>::look(int node, View<const S> y, View<const S> keep) {
  const auto i = static_cast<std::size_t>(node);
  if (i >= to_.wires.size()) return;
  StepSignal::Wire& wire = to_.wires[i];
  const Index length = y.rows / batch_.sequences;
  const SignalStats stats = signal_stats(y, batch_.sequences, length);
  wire.second_moment.measured = unless_broken(stats.moments, stats.moments.second_moment());
  if (length > 1) wire.token_cosine.measured = stats.token_cosine;
  const View<const S> old = before_.output(node);
  const double squares = squared_distance(y, old), were = sum_squares(old);
  wire.change.measured = std::sqrt(squares / static_cast<double>(y.size()));
  if (were > 0) wire.relative.measured = std::sqrt(squares / were);
  const Node& n = graph_.nodes[i];
  if (!n.params.empty() && !is_met_again(again_, i)) split(i, old, wire);
  if (const auto summary = summary_of(n.op, batch_, keep)) {
    StepSignal::Scores& a = to_.attention[attention_++];
    a.score_variance.measured = summary->score_variance;
    a.entropy.measured = summary->entropy;
    const auto q = before_.inputs_of(n), q_after = after_.inputs_of(n);
    if (const auto* op = std::get_if<Attention>(&n.op)) a.change.measured = score_change<S>(*op, batch_, q, q_after);
  }
}

// Runs the node on the old input with new parameters, all of them and one by one, and on the new input with the old ones.
template <class S>
void StepScan<S>::split(std::size_t node, View<const S> y, StepSignal::Wire& wire) {
  const Node& n = graph_.nodes[node];
  const auto x = before_.inputs_of(n), x_after = after_.inputs_of(n);
  const auto theta = before_.params_of(n), theta_after = after_.params_of(n);
  Tensor<S> out(y.rows, y.cols);
  const auto entries = static_cast<double>(y.size());
  const auto change = [&](std::span<const View<const S>> inputs, std::span<const View<const S>> params) {
    run(node, inputs, params, out.view());
    return squared_distance(View<const S>(out), y);
  };
  const double direct = change(x, theta_after);
  wire.direct.measured = std::sqrt(direct / entries);
  if (!n.inputs.empty()) wire.carried.measured = std::sqrt(change(x_after, theta) / entries);
  if (std::holds_alternative<Experts>(n.op)) return;  // too many to run it for each
  std::map<int, std::vector<std::size_t>> uses;
  for (std::size_t k = 0; k < n.params.size(); ++k) uses[n.params[k].param].push_back(k);
  for (const auto& [param, places] : uses) {
    auto mixed = theta;
    for (const std::size_t k : places) mixed[k] = theta_after[k];
    add_direct(param, uses.size() == 1 ? direct : change(x, mixed), entries);
  }
}

template <class S>
void StepScan<S>::run(std::size_t node, std::span<const View<const S>> x, std::span<const View<const S>> theta, View<S> y) const {
  const Node& n = graph_.nodes[node];
  Tensor<S> keep(y.rows, kept_by(n.op));
  const Down<S> door{batch_, x, theta, y, keep.view()};
  if (again_ != nullptr) {
    if (const auto* table = std::get_if<SeenEmbedding>(&again_->nodes[node])) return table->forward(door, {});
  }
  std::visit([&](const auto& op) { op.forward(door); }, n.op);
}

template <class S>
void StepScan<S>::finish() {
  for (std::size_t k = 0; k < direct_.size(); ++k) {
    if (direct_[k].entries > 0) to_.parameters[k].direct_change.measured = direct_[k].root();
  }
}

template double score_change(const Attention&, const Batch&, std::span<const View<const float>>, std::span<const View<const float>>);
template double score_change(const Attention&, const Batch&, std::span<const View<const double>>, std::span<const View<const double>>);
template class StepScan<float>;
template class StepScan<double>;

}  // namespace stepzero
