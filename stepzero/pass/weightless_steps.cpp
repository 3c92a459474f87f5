// The first step of matrices that are not made. What both ways of the first pass saw of them is made again, segment by segment, while
// the second runs down: only the stream and its gradient at the cuts are kept.
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/kernels/products.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/first_update.hpp"
#include "stepzero/pass/step_scan.hpp"
#include "stepzero/pass/steps.hpp"
#include "stepzero/signal/describe.hpp"

namespace stepzero {

namespace {

// The matrices of a stand-in, in the order of the node's parameters; of one in pieces the first stands for all.
std::vector<WeightlessLinear*> matrices_of(Weightless& w, std::size_t node) {
  std::vector<WeightlessLinear*> list;
  if (auto* linear = std::get_if<WeightlessLinear>(&w.nodes[node])) list.push_back(linear);
  if (auto* lora = std::get_if<WeightlessLora>(&w.nodes[node])) list.push_back(&lora->base);
  if (auto* experts = std::get_if<WeightlessExperts>(&w.nodes[node])) {
    for (WeightlessLinear& matrix : experts->matrices) list.push_back(&matrix);
  }
  return list;
}

struct ParameterSums {
  double update_squares = 0, decrease = 0, weight_squares = 0;
};

}  // namespace

struct WeightlessSteps::State {
  const Graph& graph;
  const Batch& batch;
  const StepOptions& options;
  Weightless& stand_ins;
  std::vector<TensorPlan> plans;
  std::vector<std::size_t> ends;                              // of the segments
  std::map<std::size_t, Tensor<float>> cut_gradients;         // by node
  std::vector<Tensor<float>> gradients;                       // of the parameters that are there, or of their rows
  double squares = 0;                                         // of the whole gradient
  std::map<std::size_t, std::vector<FirstPass<float>>> seen;  // by node: its matrices, while their segment runs

  void keep(int param, View<const float> d, double rest) {
    Tensor<float>& to = gradients[static_cast<std::size_t>(param)];
    if (to.size() == 0) to = Tensor<float>(d.rows, d.cols);
    std::copy_n(d.data, d.size(), to.data());
    squares += sum_squares(d) + rest;
  }

  // Everything the way down and up saw of the segment's matrices, and what becomes of them.
  void load(Pass<float>& before, Weightless& again, std::size_t segment, double shrink) {
    const std::size_t end = ends[segment], begin = segment == 0 ? 0 : ends[segment - 1] + 1;
    std::map<int, std::vector<FirstPass<float>*>> blocks;
    seen.clear();
    for (std::size_t i = begin; i <= end; ++i) {
      const auto old = matrices_of(stand_ins, i), met = matrices_of(again, i);
      auto& own = seen[i];
      own.resize(old.size());
      for (std::size_t k = 0; k < old.size(); ++k) {
        old[k]->first = met[k]->first = &own[k];
        met[k]->again = true;
        blocks[graph.nodes[i].params[k].param].push_back(&own[k]);
      }
    }
    const auto cut = cut_gradients.find(end);
    before.replay(end, cut == cut_gradients.end() ? View<const float>() : std::as_const(cut->second).view());
    for (std::size_t i = begin; i <= end; ++i) {
      for (WeightlessLinear* matrix : matrices_of(stand_ins, i)) matrix->first = {};
    }
    for (const auto& [param, list] : blocks) plan_first_update<float>(plans[static_cast<std::size_t>(param)], shrink, list);
  }

  // What came of the matrices of a node.
  void collect(Weightless& again, std::size_t node, StepScan<float>& scan, StepSignal& step, std::vector<ParameterSums>& sums) {
    auto& own = seen[node];
    const auto met = matrices_of(again, node);
    const bool alone = std::holds_alternative<WeightlessLinear>(again.nodes[node]);
    for (std::size_t k = 0; k < own.size(); ++k) {
      FirstPass<float>& first = own[k];
      sweep(*met[k], first);
      const int param = graph.nodes[node].params[k].param;
      const StepSums& s = first.sums;
      add_matrix(sums[static_cast<std::size_t>(param)], *met[k], first);
      if (!alone) continue;
      scan.add_direct(param, s.direct, s.entries);
      step.wires[node].direct.measured = std::sqrt(s.with_bias / s.entries);
      step.wires[node].carried.measured = std::sqrt(s.carried / s.entries);
      bias_alone(node, *met[k], first, scan);
    }
    own.clear();
  }

  // The rows of tables that no token looks up: a decay acts on them too.
  void add_unseen_rows(std::vector<ParameterSums>& sums) const {
    std::vector<bool> by_matrix(graph.params.size(), false);
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (std::holds_alternative<WeightlessLinear>(stand_ins.nodes[i])) by_matrix[param_of(i)] = true;
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (!std::holds_alternative<SeenEmbedding>(stand_ins.nodes[i])) continue;
      const std::size_t k = param_of(i);
      if (by_matrix[k]) continue;
      by_matrix[k] = true;
      const Param& p = graph.params[k];
      const double by = plans[k].rate.rate * plans[k].rate.decay;
      const auto unseen = static_cast<double>((p.rows() - std::ssize(stand_ins.params[k].rows)) * p.cols());
      const double rest = unseen * stand_ins.distributions.of(graph.nodes[i].params[0]).second_moment();
      sums[k].weight_squares += rest;
      sums[k].update_squares += by * by * rest;
    }
  }

  [[nodiscard]] std::size_t param_of(std::size_t node) const { return static_cast<std::size_t>(graph.nodes[node].params[0].param); }

  static void add_matrix(ParameterSums& to, const WeightlessLinear& w, const FirstPass<float>& first) {
    const double rate = first.update.rate, decay = first.update.decay;
    const double entries = static_cast<double>(w.in) * static_cast<double>(w.out - std::ssize(w.rows));
    const double weights = entries * (w.s * w.s + w.u * w.u);
    const double inner = inner_with_weights(w, first);
    to.weight_squares += weights;
    // <U, W> is known where U is the gradient; elsewhere it is as good as none beside the squares
    to.update_squares += rate * rate * (first.sums.update_squares + 2 * decay * first.update.times * inner + decay * decay * weights);
    to.decrease += rate * (first.sums.along + decay * inner);
  }

  // <g, W> = <dY, X W'>, without the explicit rows
  static double inner_with_weights(const WeightlessLinear& w, const FirstPass<float>& first) {
    if (first.update.decay == 0 || !first.same_tokens) return 0;
    double sum = 0;
    for (Index t = 0; t < first.y.rows(); ++t) {
      std::size_t next = 0;
      for (Index c = 0; c < w.out; ++c) {
        if (next < w.rows.size() && w.rows[next] == c) {
          ++next;
          continue;
        }
        sum += static_cast<double>(first.dy(t, c)) * static_cast<double>(first.y(t, c) - (w.bias ? first.bias(0, c) : 0.0F));
      }
    }
    return sum;
  }

  // A bias that is there: its change is that of every token.
  void bias_alone(std::size_t node, const WeightlessLinear& w, const FirstPass<float>&, StepScan<float>& scan) {
    const auto& uses = graph.nodes[node].params;
    for (std::size_t k = static_cast<std::size_t>(w.pieces); w.bias && k < uses.size(); ++k) {
      const Tensor<float>& change = bias_changes[static_cast<std::size_t>(uses[k].param)];
      double part = 0;
      for (Index i = 0; i < uses[k].cols; ++i) {
        const double d = static_cast<double>(change(uses[k].row0, uses[k].col0 + i));
        part += d * d;
      }
      scan.add_direct(uses[k].param, part, static_cast<double>(uses[k].cols));
    }
  }

  std::vector<Tensor<float>> bias_changes;  // of every parameter that is there

  // Parameters that are there, or the rows that are.
  void update_made(Pass<float>& before, Pass<float>& after, double shrink, std::vector<ParameterSums>& sums) {
    bias_changes.resize(graph.params.size());
    for (std::size_t k = 0; k < graph.params.size(); ++k) {
      const View<float> w = before.weight(static_cast<int>(k)), to = after.weight(static_cast<int>(k));
      std::copy_n(w.data, w.size(), to.data);
      ParameterSums& s = sums[k];
      s.weight_squares += w.size() > 0 ? sum_squares(View<const float>(w)) : 0;
      if (w.size() == 0) continue;
      Tensor<float>& change = bias_changes[k] = Tensor<float>(w.rows, w.cols);
      std::fill_n(change.data(), change.size(), 0.0F);
      if (gradients[k].size() == 0) continue;
      update_first<float>(plans[k], to, std::as_const(gradients[k]).view(), shrink);
      for (Index i = 0; i < w.size(); ++i) {
        change.data()[i] = to.data[i] - w.data[i];
        const double d = static_cast<double>(change.data()[i]);
        s.update_squares += d * d;
        s.decrease -= d * static_cast<double>(gradients[k].data()[i]);
      }
    }
  }
};

WeightlessSteps::WeightlessSteps(const Graph& graph, const Batch& batch, const StepOptions& options, Weightless& stand_ins,
                                 const Pass<float>& pass)
    : state_(new State{.graph = graph,
                       .batch = batch,
                       .options = options,
                       .stand_ins = stand_ins,
                       .plans = plan_tensors(graph, options.optimizer, options.rates),
                       .ends = pass.segment_ends(),
                       .cut_gradients = {},
                       .gradients = {},
                       .seen = {},
                       .bias_changes = {}}) {
  state_->gradients.resize(graph.params.size());
}

WeightlessSteps::~WeightlessSteps() = default;

Observer<float> WeightlessSteps::observer() {
  State& s = *state_;
  return {.backward =
              [&s](int node, View<const float> dy) {
                const auto i = static_cast<std::size_t>(node);
                if (i + 1 < s.graph.nodes.size() && std::ranges::find(s.ends, i) != s.ends.end()) s.cut_gradients[i] = met_again::copy(dy);
              },
          .parameter = [&s](int param, View<const float> d) { s.keep(param, d, 0); },
          .unmade = [&s](int param, View<const float> rows, double rest) { s.keep(param, rows, rest); }};
}

void WeightlessSteps::run(Pass<float>& pass, Signal& signal, const std::function<void()>& tick) {
  State& s = *state_;
  StepSignal& step = signal.steps.emplace_back(describe_step(s.graph, signal));
  step.before.measured = signal.loss.measured;
  Weightless again = s.stand_ins;
  Pass<float> after(s.graph, s.batch, {.checkpoint = true, .weightless = &again});
  const double shrink = clipped_share(std::sqrt(std::exchange(s.squares, 0.0)), s.options.optimizer.clip);
  std::vector<ParameterSums> sums(s.graph.params.size());
  s.update_made(pass, after, shrink, sums);
  s.add_unseen_rows(sums);
  StepScan<float> scan(s.graph, s.batch, pass, after, &again, step);
  std::size_t segment = 0;
  s.load(pass, again, segment, shrink);
  step.after.measured = after.forward({.forward = [&](int node, View<const float> y, View<const float> keep) {
    const auto i = static_cast<std::size_t>(node);
    scan.look(node, y, keep);
    s.collect(again, i, scan, step, sums);
    if (tick) tick();
    if (i != s.ends[segment]) return;
    pass.drop(i);
    if (++segment < s.ends.size()) s.load(pass, again, segment, shrink);
  }});
  scan.finish();
  double decrease = 0;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    StepSignal::Parameter& p = step.parameters[k];
    p.update_norm.measured = std::sqrt(sums[k].update_squares);
    if (sums[k].weight_squares > 0) p.relative.measured = std::sqrt(sums[k].update_squares / sums[k].weight_squares);
    p.decrease.measured = sums[k].decrease;
    decrease += sums[k].decrease;
  }
  step.first_order.measured = -decrease;
}

double WeightlessSteps::memory_needed(const Graph& graph, const Batch& batch, const Weightless& stand_ins) {
  const double pass = Pass<float>::memory_needed(graph, batch, {.checkpoint = true, .weightless = &stand_ins});
  // beside a second pass: what both ways of the first saw of one segment, and the gradients at the cuts, which the second has no need of
  return 4 * pass;
}

Expected<void> check_weightless_step(const Graph& graph, const Weightless& stand_ins, const StepOptions& options) {
  const std::vector<TensorPlan> plans = plan_tensors(graph, options.optimizer, options.rates);
  std::vector<int> wire(graph.params.size(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!std::holds_alternative<WeightlessLinear>(stand_ins.nodes[i])) continue;
    const auto k = static_cast<std::size_t>(graph.nodes[i].params[0].param);
    const int reads = graph.nodes[i].inputs[0];
    if (!std::holds_alternative<Muon>(plans[k].rule)) continue;
    if (wire[k] >= 0 && wire[k] != reads) {
      return fail(
          fmt::format("parts of \"{}\" have different inputs: muon's update of it needs the whole matrix", show(graph.params[k].name)),
          "measure without --weightless, or with another --optimizer");
    }
    wire[k] = reads;
  }
  return {};
}

}  // namespace stepzero
