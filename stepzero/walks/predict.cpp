#include "stepzero/walks/predict.hpp"

#include <cmath>

#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/walks/measure.hpp"

namespace stepzero {

namespace {

Law law_of(const Distribution& d, bool token_table) { return {d.mean, d.std() * d.std(), token_table}; }

// Mean over pairs of different positions of one sequence of K_ts / sqrt(K_tt K_ss), averaged over the batch.
double token_cosine(const Kernel& K, const Batch& batch) {
  const Correlation correlation(K);
  double total = 0;
  for (Index b = 0; b < batch.sequences; ++b) {
    const Index start = b * batch.length;
    for (Index t = start; t < start + batch.length; ++t) {
      for (Index s = start; s < t; ++s) total += 2 * correlation(t, s);
    }
  }
  return total / static_cast<double>(batch.sequences * batch.length * (batch.length - 1));
}

class Walk {
 public:
  Walk(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme)
      : graph_(graph),
        batch_(batch),
        signal_(describe(graph, a, batch)),
        assignment_(graph, a, scheme),
        moments_(graph.nodes.size()),
        adjoints_(graph.nodes.size()),
        squares_(graph.params.size(), 0.0) {
    signal_.scheme = scheme.name;
    for (std::size_t i = 0; i < graph.params.size(); ++i) signal_.parameters[i].std.predicted = assignment_.std(i);
  }

  Signal run() {
    down();
    up();
    double total = 0;
    for (std::size_t i = 0; i < squares_.size(); ++i) {
      signal_.parameters[i].gradient_norm.predicted = std::sqrt(squares_[i]);
      total += squares_[i];
    }
    signal_.gradient_norm.predicted = std::sqrt(total);
    return std::move(signal_);
  }

 private:
  [[nodiscard]] std::vector<const Moment*> inputs_of(const Node& node) const {
    std::vector<const Moment*> list;
    for (const int wire : node.inputs) list.push_back(&moments_[static_cast<std::size_t>(wire)]);
    return list;
  }
  [[nodiscard]] std::vector<Law> laws_of(const Node& node) const {
    std::vector<Law> list;
    for (const ParamUse& use : node.params) {
      const bool table = graph_.params[static_cast<std::size_t>(use.param)].role == Role::token_embedding;
      list.push_back(law_of(assignment_.of(use), table));
    }
    return list;
  }

  // Laws know mean and variance only: orthogonal matrices differ by what falls with the width, others by more.
  [[nodiscard]] std::string grade_of(const Node& node, const std::string& grade) const {
    using S = Distribution::Structure;
    const S s = node.params.empty() ? S::none : assignment_.of(node.params[0]).structure;
    if (s == S::none || grade == to_string(Grade::approximate)) return grade;
    return to_string(s == S::orthogonal ? Grade::large_width : Grade::approximate);
  }

  void down() {
    std::size_t attention = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      const auto x = inputs_of(node);
      const auto theta = laws_of(node);
      moments_[i] = std::visit([&](const auto& op) { return op.push({batch_, x, theta}); }, node.op);
      const Moment& m = moments_[i];
      if (i + 1 == graph_.nodes.size()) {
        double loss = 0;
        for (const double share : m.mean) loss += share;
        signal_.loss.predicted = loss;
        continue;
      }
      NodeSignal& to = signal_.nodes[i];
      to.grade = to_string(std::visit([](const auto& op) { return op.grade; }, node.op));
      to.grade = grade_of(node, to.grade);
      double mean = 0;
      for (const double x_t : m.mean) mean += x_t / static_cast<double>(batch_.tokens());
      const double square = m.K.trace() / static_cast<double>(batch_.tokens());
      to.forward.second_moment.predicted = square;
      to.forward.mean.predicted = mean;
      to.forward.variance.predicted = square - mean * mean;
      if (batch_.length > 1) to.forward.token_cosine.predicted = token_cosine(m.K, batch_);
      if (m.attention && std::holds_alternative<Attention>(node.op)) {  // ops that copy a moment copy this too
        AttentionSignal& a = signal_.attention[attention++];
        a.score_variance.predicted = m.attention->score_variance;
        a.entropy.predicted = m.attention->entropy;
        a.sum_squares.predicted = m.attention->sum_squares;
      }
    }
  }

  void up() {
    const std::size_t last = graph_.nodes.size() - 1;
    adjoints_[last].G = Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; });
    for (std::size_t i = last + 1; i-- > 0;) {
      if (adjoints_[i].G.empty()) continue;
      const Node& node = graph_.nodes[i];
      if (i < last) record(signal_.nodes[i], adjoints_[i], channels_of(node.op));
      const auto x = inputs_of(node);
      const auto theta = laws_of(node);
      const PullDoor door{batch_, x, theta, moments_[i], adjoints_[i]};
      const Pulled pulled = std::visit([&](const auto& op) { return op.pull(door); }, node.op);
      for (std::size_t k = 0; k < node.inputs.size(); ++k) add(adjoints_[static_cast<std::size_t>(node.inputs[k])], pulled.dx[k]);
      for (std::size_t k = 0; k < node.params.size(); ++k) squares_[static_cast<std::size_t>(node.params[k].param)] += pulled.dtheta[k];
      adjoints_[i] = {};
      moments_[i] = {};
    }
  }

  static void add(Adjoint& to, const Adjoint& d) {
    if (to.G.empty())
      to = d;
    else
      to = {.G = to.G + d.G};
  }

  void record(NodeSignal& to, const Adjoint& d, Index channels) const {
    const double squares = d.G.trace();
    to.backward.norm.predicted = std::sqrt(squares);
    to.backward.second_moment.predicted = squares / static_cast<double>(batch_.tokens() * channels);
    if (batch_.length > 1) to.backward.token_cosine.predicted = token_cosine(d.G, batch_);
  }

  const Graph& graph_;
  const Batch& batch_;
  Signal signal_;
  Assignment assignment_;
  std::vector<Moment> moments_;
  std::vector<Adjoint> adjoints_;
  std::vector<double> squares_;
};

}  // namespace

const char* to_string(Grade grade) {
  switch (grade) {
    case Grade::exact:
      return "exact";
    case Grade::large_width:
      return "large_width";
    case Grade::approximate:
      return "approximate";
    case Grade::sampled:
      return "sampled";
  }
  return "?";
}

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme) {
  return Walk(graph, a, batch, scheme).run();
}

}  // namespace stepzero
