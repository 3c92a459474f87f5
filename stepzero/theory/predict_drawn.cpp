#include "stepzero/theory/predict_drawn.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "stepzero/core/running.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/ops/single_draw.hpp"
#include "stepzero/theory/moment_walk.hpp"

namespace stepzero {

namespace {

// Draws kernels of whole models.
class Drawer {
 public:
  Drawer(const Graph& graph, const Batch& batch, const Assignment& laws)
      : graph_(graph), batch_(batch), theta_(laws_of(graph, laws)), samples_(graph.nodes.size(), false) {
    possible_ = !check_sources(graph).value_or(false) && !shares_values(graph);  // sums whose wires share sources are not drawn
    std::vector<ChannelLaw> of;                                                  // the law of each wire's channels
    std::vector<bool> law;                                                       // whether its kernel is that law
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      const auto own = channel_law_of(node.op);
      possible_ = possible_ && own;
      of.push_back(own.value_or(ChannelLaw{}));
      law.push_back(of[i].gaussian || (of[i].as_input && !node.inputs.empty() && law[static_cast<std::size_t>(node.inputs[0])]));
      for (const ParamUse& use : node.params) possible_ = possible_ && !laws.structured(static_cast<std::size_t>(use.param));
      for (const int wire : node.inputs) {
        const auto w = static_cast<std::size_t>(wire);
        const bool one_law = of[w].of_its_own && !(of[i].of_its_own && node.inputs.size() > 1);  // a product reads the laws of its factors
        if (one_law || (law[w] && !of[i].wants_law)) samples_[w] = true;
      }
    }
  }

  [[nodiscard]] bool possible() const { return possible_; }

  // Floating-point operations of one draw, fitted; a core does some 4e10 a second. variance: of the logits.
  [[nodiscard]] double cost(double variance) const {
    const double t = static_cast<double>(batch_.tokens());
    double sum = 0;
    for (const Node& node : graph_.nodes) sum += 400 * t * t + 1e5 + draw_cost_of(node.op, batch_, variance);
    return sum;
  }

  // What one draw yields: the squares of the gradients at nodes and of parameters.
  struct Numbers {
    std::vector<double> nodes, params;
  };

  [[nodiscard]] Numbers draw(Index single) const {
    const auto draws = [&](std::size_t node, bool) { return Draws{node, 0, single}; };
    MomentWalk walk(graph_, batch_, theta_, {.order = Order::draws, .keep_all = true, .effort = draws});
    Numbers out{std::vector<double>(graph_.nodes.size(), 0.0), std::vector<double>(graph_.params.size(), 0.0)};
    walk.down([&](std::size_t i, DownWire& m) {
      if (samples_[i]) m.K = gram_of_channels(m.K, m.width, draws(i, true));
    });
    walk.up(graph_.nodes.size() - 1, Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; }), true,
            [&](std::size_t i, const UpWire& d, const Spread&) { out.nodes[i] = d.G.trace(); });
    out.params = walk.squares();
    return out;
  }

 private:
  const Graph& graph_;
  const Batch& batch_;
  NodeLaws theta_;
  bool possible_ = true;
  std::vector<bool> samples_;  // nodes whose Gram matrix is drawn
};

// The mean over draws and its standard error, relative to the mean, from pairs of opposite draws.
struct Mean {
  Running numbers, pairs;

  void add(double first, double second) {
    numbers.add(first);
    numbers.add(second);
    pairs.add((first + second) / 2);
  }
  [[nodiscard]] double error() const { return pairs.error() / pairs.mean; }
  // The error of a rule for mean kernels: of second order in how much single draws vary, which it neglects.
  [[nodiscard]] double neglected() const {
    constexpr double share = 0.2, most = 0.07;  // as seen over the grid of docs/accuracy.md
    return std::min(share * numbers.variance() / (pairs.mean * pairs.mean), most);
  }
  [[nodiscard]] bool told() const { return pairs.mean > 0; }
  [[nodiscard]] bool sure() const { return !told() || error() <= std::max(0.005, neglected() / 8); }
  // The mean of the rule's value and the draws', each weighted by what it may be off by.
  [[nodiscard]] double meets(double rule) const {
    if (!told()) return rule;
    const double e = error() * error(), r = neglected() * neglected();
    return r + e > 0 ? (e * rule + r * pairs.mean) / (r + e) : rule;
  }
};

bool nearly_all_sure(const std::vector<Mean>& list) {
  const auto sure = std::ranges::count_if(list, [](const Mean& m) { return m.sure(); });
  return static_cast<double>(sure) >= 0.98 * static_cast<double>(list.size());
}

}  // namespace

Index refine_by_draws(const Graph& graph, const Batch& batch, const Assignment& laws, Signal& signal,
                      const std::function<void(double)>& progress) {
  constexpr double effort = 1.2e11;  // a second and a half on two cores
  constexpr Index together = 16, least = 64, most = 1024;
  const Drawer drawer(graph, batch, laws);
  const double cost = drawer.cost(signal.nodes.back().forward.second_moment.predicted.value_or(0));
  const Index affords = drawer.possible() ? static_cast<Index>(std::min(effort / cost, static_cast<double>(most))) : 0;
  if (affords < least) return 0;
  std::vector<Mean> nodes(graph.nodes.size() - 1), params(graph.params.size());  // without the loss, whose gradient is 1
  std::vector<Drawer::Numbers> slots(together);
  Index n = 0;
  while (n + together <= affords && !(n >= least && nearly_all_sure(nodes) && nearly_all_sure(params))) {
    parallel_for(together, [&](Index i) { slots[static_cast<std::size_t>(i)] = drawer.draw(n + i); });
    for (std::size_t i = 0; i < slots.size(); i += 2) {
      for (std::size_t k = 0; k < nodes.size(); ++k) nodes[k].add(slots[i].nodes[k], slots[i + 1].nodes[k]);
      for (std::size_t k = 0; k < params.size(); ++k) {
        if (!graph.params[k].frozen) params[k].add(slots[i].params[k], slots[i + 1].params[k]);
      }
    }
    n += together;
    if (progress) progress(static_cast<double>(n) / static_cast<double>(affords));
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    auto& to = signal.nodes[i].backward;
    const double rule = to.norm.predicted.value_or(0) * to.norm.predicted.value_or(0);
    if (!(rule > 0)) continue;
    const double square = nodes[i].meets(rule);
    *to.second_moment.predicted *= square / rule;
    to.norm.predicted = std::sqrt(square);
  }
  double total = 0;
  const double rounding = 1e-6 * *signal.gradient_norm.predicted;  // a gradient of 0 (the bias of k) stays 0
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (graph.params[i].frozen) continue;
    double& norm = *signal.parameters[i].gradient_norm.predicted;
    if (norm > rounding) norm = std::sqrt(params[i].meets(norm * norm));
    total += norm * norm;
  }
  signal.gradient_norm.predicted = std::sqrt(total);
  return n;
}

}  // namespace stepzero
