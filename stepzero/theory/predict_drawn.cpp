#include "stepzero/theory/predict_drawn.hpp"

#include <algorithm>
#include <cmath>
#include <variant>

#include "stepzero/core/running.hpp"
#include "stepzero/ops/single_draw.hpp"
#include "stepzero/theory/add_adjoints.hpp"
#include "stepzero/theory/node_laws.hpp"

namespace stepzero {

namespace {

template <class T, class... List>
constexpr bool one_of = (std::is_same_v<T, List> || ...);
template <class T>
constexpr bool is_function = requires { typename T::phi; };

// How an op stands to draws.
struct Nature {
  bool known = false;         // draws can pass it
  bool gaussian = false;      // its output is Gaussian given its input: the kernel is the law of its channels
  bool hands_on = false;      // ... if its input is
  bool takes_law = false;     // it wants the law of its input's channels, not their Gram matrix
  bool not_gaussian = false;  // its output has a law of its own, of which a Gram matrix is made at once
};

Nature nature_of(const AnyOp& any) {
  return std::visit(
      []<class T>(const T& op) -> Nature {
        if constexpr (one_of<T, TokenEmbedding, Linear>) return {.known = true, .gaussian = true};
        if constexpr (one_of<T, LearnedPosition, SinusoidalPosition, Scale>) return {.known = true, .hands_on = true, .takes_law = true};
        if constexpr (one_of<T, LayerNorm, RmsNorm>) return {.known = true, .takes_law = op.groups > 1};
        if constexpr (is_function<T>) return {.known = true, .takes_law = true, .not_gaussian = true};
        if constexpr (one_of<T, Multiply>) return {.known = true, .takes_law = true, .not_gaussian = true};
        if constexpr (one_of<T, Rotary, Softcap, CrossEntropy>) return {.known = true, .takes_law = true};
        if constexpr (one_of<T, Attention>) return {.known = !op.cross && op.buckets == 0, .takes_law = true};
        if constexpr (one_of<T, Residual>) return {.known = true};
        return {};
      },
      any);
}

class Drawer {
 public:
  Drawer(const Graph& graph, const Batch& batch, const Assignment& assignment)
      : graph_(graph), batch_(batch), samples_(graph.nodes.size(), false), theta_(graph.nodes.size()) {
    std::vector<Nature> nature;
    std::vector<bool> law;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      nature.push_back(nature_of(node.op));
      possible_ = possible_ && nature[i].known;
      law.push_back(nature[i].gaussian || (nature[i].hands_on && !node.inputs.empty() && law[static_cast<std::size_t>(node.inputs[0])]));
      theta_[i] = laws_of(graph, node, assignment);
      for (const ParamUse& use : node.params) possible_ = possible_ && !assignment.structured(static_cast<std::size_t>(use.param));
      for (const int wire : node.inputs) {
        const auto w = static_cast<std::size_t>(wire);
        const bool product = nature[w].not_gaussian && !std::holds_alternative<Multiply>(node.op);
        if (product || (law[w] && !nature[i].takes_law)) samples_[w] = true;
      }
    }
  }

  [[nodiscard]] bool possible() const { return possible_; }

  // Operations of one draw, of which a core does some 4e10 a second: fitted.
  [[nodiscard]] double cost() const {
    const double t = static_cast<double>(batch_.tokens());
    double sum = 0;
    for (const Node& node : graph_.nodes) {
      sum += 400 * t * t + 1e5;
      if (const auto* op = std::get_if<Attention>(&node.op)) {
        sum += static_cast<double>(op->heads) * (2 * t * t * (25 * t + 6 * static_cast<double>(op->key_dim)) + 1e6);
      }
    }
    return sum;
  }

  // What one draw yields: the squares of the gradients at nodes and of parameters.
  struct Numbers {
    std::vector<double> nodes, params;
  };

  [[nodiscard]] Numbers draw(Index single) const {
    std::vector<Moment> moments(graph_.nodes.size());
    for (std::size_t i = 0; i < moments.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const Draws draws{i, 0, single};
      const auto x = inputs_of(node, moments);
      Moment& m = moments[i];
      m = std::visit([&](const auto& op) { return op.push({batch_, x, theta_[i], draws}); }, node.op);
      m.width = channels_of(node.op);
      m.settle();
      if (samples_[i]) m.K = gram_of_channels(m.K, m.width, draws);
    }
    Numbers out{std::vector<double>(moments.size(), 0.0), std::vector<double>(graph_.params.size(), 0.0)};
    std::vector<Adjoint> adjoints(moments.size());
    adjoints.back().G = Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; });
    for (std::size_t i = moments.size(); i-- > 0;) {
      if (adjoints[i].G.empty()) continue;
      const Node& node = graph_.nodes[i];
      out.nodes[i] = adjoints[i].G.trace();
      const auto x = inputs_of(node, moments);
      const PullDoor door{batch_, x, theta_[i], moments[i], adjoints[i], {i, 0, single}};
      Pulled pulled = std::visit([&](const auto& op) { return op.pull(door); }, node.op);
      for (std::size_t k = 0; k < node.inputs.size(); ++k) {
        pulled.dx[k].settle();
        meet(adjoints[static_cast<std::size_t>(node.inputs[k])], pulled.dx[k], x[k]->width);
      }
      for (std::size_t k = 0; k < node.params.size(); ++k) {
        out.params[static_cast<std::size_t>(node.params[k].param)] += std::max(pulled.dtheta[k], 0.0);
      }
      adjoints[i] = {};
    }
    return out;
  }

 private:
  const Graph& graph_;
  const Batch& batch_;
  bool possible_ = true;
  std::vector<bool> samples_;  // nodes whose Gram matrix is drawn
  std::vector<std::vector<Law>> theta_;
};

// The mean over draws, and what it may be off by: from pairs of opposite draws. Relative to the mean.
struct Mean {
  Running numbers, pairs;

  void add(double first, double second) {
    numbers.add(first);
    numbers.add(second);
    pairs.add((first + second) / 2);
  }
  [[nodiscard]] double error() const { return pairs.error() / pairs.mean; }
  // What a rule for mean kernels may be off by: it neglects what goes with the square of how far single draws are off.
  [[nodiscard]] double neglected() const {
    constexpr double share = 0.2, most = 0.07;  // as seen over the grid of docs/accuracy.md
    return std::min(share * numbers.variance() / (pairs.mean * pairs.mean), most);
  }
  [[nodiscard]] bool told() const { return pairs.mean > 0; }
  [[nodiscard]] bool sure() const { return !told() || error() <= std::max(0.005, neglected() / 8); }
  // Between the rule's value and the draws' mean, as far as each may be off.
  [[nodiscard]] double meets(double rule) const {
    if (!told()) return rule;
    const double e = error() * error(), r = neglected() * neglected();
    return r + e > 0 ? (e * rule + r * pairs.mean) / (r + e) : rule;
  }
};

// Where single logits decide, the loss draws its softmax for every token, down and up (cross_entropy_moments.cpp).
double cost_of_loss(const Graph& graph, const Signal& signal, Index tokens) {
  const auto* loss = std::get_if<CrossEntropy>(&graph.nodes.back().op);
  if (loss == nullptr || graph.nodes.size() < 2) return 0;
  const double vocab = static_cast<double>(loss->vocab);
  const double variance = signal.nodes[graph.nodes.size() - 2].forward.second_moment.predicted.value_or(0);
  const bool drawn = !(std::expm1(1.2 * variance) < 0.01 * vocab);
  return drawn ? 2 * static_cast<double>(tokens) * std::max(8192.0, 32 * vocab) * 400 : 0;
}

bool nearly_all_sure(const std::vector<Mean>& list) {
  const auto sure = std::ranges::count_if(list, [](const Mean& m) { return m.sure(); });
  return static_cast<double>(sure) >= 0.98 * static_cast<double>(list.size());
}

}  // namespace

Index refine_by_draws(const Graph& graph, const Batch& batch, const Assignment& laws, Signal& signal) {
  constexpr double effort = 1.2e11;  // a second and a half on two cores
  constexpr Index together = 16, least = 64, most = 1024;
  const Drawer drawer(graph, batch, laws);
  const double cost = drawer.cost() + cost_of_loss(graph, signal, batch.tokens());
  const Index affords = drawer.possible() ? static_cast<Index>(std::min(effort / cost, static_cast<double>(most))) : 0;
  if (affords < least) return 0;
  std::vector<Mean> nodes(graph.nodes.size() - 1), params(graph.params.size());  // but for the loss, whose gradient is 1
  std::vector<Drawer::Numbers> slots(together);
  Index n = 0;
  while (n + together <= affords && !(n >= least && nearly_all_sure(nodes) && nearly_all_sure(params))) {
    parallel_for(together, [&](Index i) { slots[static_cast<std::size_t>(i)] = drawer.draw(n + i); });
    for (std::size_t i = 0; i < slots.size(); i += 2) {
      for (std::size_t k = 0; k < nodes.size(); ++k) nodes[k].add(slots[i].nodes[k], slots[i + 1].nodes[k]);
      for (std::size_t k = 0; k < params.size(); ++k) params[k].add(slots[i].params[k], slots[i + 1].params[k]);
    }
    n += together;
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
  const double rounding = 1e-6 * *signal.gradient_norm.predicted;  // a gradient that is 0 (the bias of k) stays so
  for (std::size_t i = 0; i < params.size(); ++i) {
    double& norm = *signal.parameters[i].gradient_norm.predicted;
    if (norm > rounding) norm = std::sqrt(params[i].meets(norm * norm));
    total += norm * norm;
  }
  signal.gradient_norm.predicted = std::sqrt(total);
  return n;
}

}  // namespace stepzero
