#include "stepzero/walks/predict.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/memory.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/walks/laws.hpp"
#include "stepzero/walks/measure.hpp"
#include "stepzero/walks/meet.hpp"
#include "stepzero/walks/predict_drawn.hpp"

namespace stepzero {

namespace {

// Mean over pairs of different positions of one sequence of K_ts / sqrt(K_tt K_ss), averaged over the batch.
double token_cosine(const Kernel& K, Index sequences, double shrink = 0) {
  // a token that is nothing but rounding (the gradient of a query with one key) has no direction
  const double least = 1e-12 * K.trace() / static_cast<double>(K.tokens());
  for (Index t = 0; t < K.tokens(); ++t) {
    if (K(t, t) == 0 || K(t, t) >= least) continue;
    return token_cosine(Kernel::from(K.tokens(), [&](Index i, Index j) { return K(i, i) >= least && K(j, j) >= least ? K(i, j) : 0; }),
                        sequences, shrink);
  }
  const Correlation correlation(K);
  const Index length = K.tokens() / sequences;
  double total = 0;
  for (Index b = 0; b < sequences; ++b) {
    const Index start = b * length;
    for (Index t = start; t < start + length; ++t) {
      total += 2 * correlation.row_sum(t, start, shrink);
    }
  }
  return total / static_cast<double>(sequences * length * (length - 1));
}

// Spread of the mean cosine over draws of `noise` = 1 / channels: tokens that share a direction of size rho and differ in the rest.
double cosine_spread(double rho, double noise, Index length, double swing = 0) {
  const double t = static_cast<double>(length);
  const double apart = std::max(1 - rho, 0.0), shared = std::clamp(rho, 0.0, 1.0);
  return std::sqrt(swing * apart * apart +
                   noise * (2 * shared * shared * apart * apart + 4 * shared * apart * apart / t + 2 * apart * apart / (t * t)));
}

class Walk {
 public:
  Walk(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws, const std::string& name)
      : graph_(graph),
        batch_(batch),
        short_(batch.tokens() <= 256),
        signal_(describe(graph, a, batch)),
        assignment_(laws),
        moments_(graph.nodes.size()),
        adjoints_(graph.nodes.size()),
        last_use_(graph.nodes.size(), 0),
        squares_(graph.params.size(), 0.0),
        deviations_(graph.params.size(), 0.0) {
    signal_.scheme = name;
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      signal_.parameters[i].std.predicted = assignment_.std(i);
      signal_.parameters[i].std.spread = assignment_.std(i) / std::sqrt(2 * static_cast<double>(graph.params[i].size()));
    }
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      for (const int wire : graph.nodes[i].inputs) last_use_[static_cast<std::size_t>(wire)] = i;
    }
  }

  Signal run(const PredictOptions& options) {
    share_ = options.effort;
    down();
    const std::size_t last = graph_.nodes.size() - 1;
    if (options.jacobians) jacobians();
    last_ = true;
    up(last, Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; }),
       [&](std::size_t i) { record(signal_.nodes[i], adjoints_[i], channels_of(graph_.nodes[i].op)); });
    double total = 0, deviation = 0;
    for (std::size_t i = 0; i < squares_.size(); ++i) {
      Value& norm = signal_.parameters[i].gradient_norm;
      norm.predicted = std::sqrt(squares_[i]);
      norm.spread = squares_[i] > 0 ? deviations_[i] / (2 * *norm.predicted) : 0;
      total += squares_[i];
      deviation += deviations_[i];
    }
    signal_.gradient_norm.predicted = std::sqrt(total);
    if (total > 0) signal_.gradient_norm.spread = deviation / (2 * std::sqrt(total));
    if (options.draws) signal_.kernel_draws = refine_by_draws(graph_, batch_, assignment_, signal_);
    fill_growth(signal_, &Value::predicted);
    return std::move(signal_);
  }

 private:
  [[nodiscard]] double effort() const {
    const double tokens = static_cast<double>(batch_.tokens());
    // a second or so on two cores, more for many tokens, and for few, whose heads tell more of one draw from another
    return share_ * 6e10 * std::clamp(tokens * tokens / (128 * 128), 1.0, 4.0) * std::clamp(128 / tokens, 1.0, 2.5);
  }
  [[nodiscard]] Draws draws(std::size_t node) const {
    return {node, effort() / static_cast<double>(std::max<std::size_t>(1, signal_.attention.size()))};
  }
  // On the way down half of the effort goes by 1, 1/2, 1/3, ...: what the first heads are off by all layers behind them see.
  [[nodiscard]] Draws draws_down(std::size_t node) const {
    Draws out = draws(node);
    if (!std::holds_alternative<Attention>(graph_.nodes[node].op)) return out;
    double place = 0, before = 0, sum = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!std::holds_alternative<Attention>(graph_.nodes[i].op)) continue;
      if (i == node) place = before;
      sum += 1 / ++before;
    }
    out.effort = out.effort / 2 + effort() / 2 / (sum * (place + 1));
    return out;
  }

  void push(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const auto x = inputs_of(node, moments_);
    const auto theta = laws_of(graph_, node, assignment_);
    moments_[i] = std::visit([&](const auto& op) { return op.push({batch_, x, theta, draws_down(i)}); }, node.op);
    moments_[i].width = channels_of(node.op);
    if (!short_) moments_[i].keep = nullptr;
  }

  // Memory holds the streams and what attentions mixed; everything else is made again on the way up.
  [[nodiscard]] bool kept(std::size_t i) const {
    const Node& node = graph_.nodes[i];
    if (node.inputs.empty() || std::holds_alternative<Residual>(node.op) || std::holds_alternative<Attention>(node.op)) return true;
    const bool scaled = std::holds_alternative<Linear>(node.op) || std::holds_alternative<LoraLinear>(node.op);  // shares its input's
    return short_ && !scaled && !std::holds_alternative<Rotary>(node.op);                                        // other kernels take time
  }
  void restore(std::size_t i) {
    if (!moments_[i].K.empty()) return;
    for (const int wire : graph_.nodes[i].inputs) restore(static_cast<std::size_t>(wire));
    push(i);
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
      push(i);
      const Moment& m = moments_[i];
      if (i + 1 == graph_.nodes.size()) {
        double loss = 0;
        for (const double share : m.mean) loss += share;
        signal_.loss = {.predicted = loss, .spread = std::sqrt(m.drift), .measured = {}, .standard_error = {}};
      } else {
        record(i);
        signal_.nodes[i].grade =
            grade_of(graph_.nodes[i], to_string(std::visit([](const auto& op) { return op.grade; }, graph_.nodes[i].op)));
        if (std::holds_alternative<Attention>(graph_.nodes[i].op)) record(signal_.attention[attention++], m);
      }
      for (const int wire : graph_.nodes[i].inputs) {
        const auto w = static_cast<std::size_t>(wire);
        if (last_use_[w] == i && !kept(w)) moments_[w] = {};
      }
    }
  }

  static void set(Value& to, double predicted, double spread) {
    to.predicted = predicted;
    to.spread = spread;
  }

  static void record(AttentionSignal& to, const Moment& m) {
    set(to.score_variance, m.attention->score_variance, m.attention_spread.score_variance);
    set(to.entropy, m.attention->entropy, m.attention_spread.entropy);
    set(to.sum_squares, m.attention->sum_squares, m.attention_spread.sum_squares);
  }

  void record(std::size_t i) {
    NodeSignal& to = signal_.nodes[i];
    const Moment& m = moments_[i];
    const double tokens = static_cast<double>(m.K.tokens());
    double mean = 0;
    for (const double x_t : m.mean) mean += x_t / tokens;
    const double square = m.K.trace() / tokens;
    const double spread = square * std::sqrt(m.level());
    set(to.forward.second_moment, square, spread);
    set(to.forward.mean, mean, std::sqrt(std::max(m.K.sum() / (tokens * tokens) - mean * mean, 0.0) / static_cast<double>(m.width)));
    set(to.forward.variance, square - mean * mean, spread);
    const Index length = m.K.tokens() / batch_.sequences;
    if (length == 1) return;
    const auto& inputs = graph_.nodes[i].inputs;
    const auto before = inputs.empty() ? i : static_cast<std::size_t>(inputs[0]);
    const bool same = before != i && m.K.same_up_to_scale(moments_[before].K);  // a product with a matrix
    const double cosine = same ? *signal_.nodes[before].forward.token_cosine.predicted
                               : std::min(m.lift() * token_cosine(m.K, batch_.sequences, m.shrink(channels_of(graph_.nodes[i].op))), 1.0);
    set(to.forward.token_cosine, cosine, cosine_spread(cosine, m.noise, length, m.swing));
  }

  // From node `last` on; see(i) when all of node i's gradient is there.
  template <class See>
  void up(std::size_t last, const Kernel& start, const See& see) {
    adjoints_[last].G = start;
    for (std::size_t i = last + 1; i-- > 0;) {
      if (adjoints_[i].G.empty()) continue;
      const Node& node = graph_.nodes[i];
      if (i + 1 < graph_.nodes.size()) see(i);
      restore(i);
      for (const int wire : node.inputs) restore(static_cast<std::size_t>(wire));
      pull(i);
      adjoints_[i] = {};
      if (last_ || !kept(i)) moments_[i] = {};
    }
  }

  void pull(std::size_t i) {
    const Node& node = graph_.nodes[i];
    const auto x = inputs_of(node, moments_);
    const auto theta = laws_of(graph_, node, assignment_);
    const PullDoor door{batch_, x, theta, moments_[i], adjoints_[i], draws(i)};
    Pulled pulled = std::visit([&](const auto& op) { return op.pull(door); }, node.op);
    double level = adjoints_[i].level;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      pulled.dx[k].level += level;
      pulled.dx[k].noise += adjoints_[i].noise;
      pulled.dx[k].stretch += adjoints_[i].stretch;
      meet(adjoints_[static_cast<std::size_t>(node.inputs[k])], pulled.dx[k], x[k]->width);
    }
    for (const Moment* m : x) level += m->level();
    for (std::size_t k = 0; k < node.params.size(); ++k) {
      const auto param = static_cast<std::size_t>(node.params[k].param);
      const double squares = std::max(pulled.dtheta[k], 0.0);  // a gradient that is 0 (the bias of k) is so up to rounding
      squares_[param] += squares;
      deviations_[param] += squares * std::sqrt(level + (pulled.levels.empty() ? 0 : pulled.levels[k]));
    }
  }

  void record(NodeSignal& to, const Adjoint& d, Index channels) {
    const double squares = d.G.trace();
    const double numbers = static_cast<double>(d.G.tokens() * channels);
    const double deviation = std::sqrt(d.level);
    set(to.backward.norm, std::sqrt(squares), std::sqrt(squares) * deviation / 2);
    set(to.backward.second_moment, squares / numbers, squares / numbers * deviation);
    const Index length = d.G.tokens() / batch_.sequences;
    if (length == 1) return;
    if (!d.G.same_up_to_scale(seen_.G)) seen_ = {d.G, token_cosine(d.G, batch_.sequences)};
    const double cosine = seen_.cosine;
    set(to.backward.token_cosine, cosine, cosine_spread(cosine, d.noise, length));
  }

  // A change of one number of the last stream, alike for all of them, followed up.
  void jacobians() {
    std::size_t end = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].name.starts_with("stream.")) end = i;
    }
    const Index rows = graph_.rows(batch_)[end];
    const double tokens = static_cast<double>(rows);
    const auto squares = squares_, deviations = deviations_;
    up(end, Kernel::from(rows, [&](Index t, Index s) { return t == s ? 1 / tokens : 0; }), [&](std::size_t i) {
      const std::string& name = graph_.nodes[i].name;
      if (!name.starts_with("stream.") || i == end) return;
      signal_.jacobians.push_back({name, graph_.nodes[end].name, {}});
      set(signal_.jacobians.back().square, adjoints_[i].G.trace(), adjoints_[i].G.trace() * std::sqrt(adjoints_[i].level));
    });
    squares_ = squares;
    deviations_ = deviations;
  }

  const Graph& graph_;
  const Batch& batch_;
  bool short_;         // kernels are small: what can be kept is
  double share_ = 1;   // of the usual effort
  bool last_ = false;  // on the last way up: nothing is needed again
  Signal signal_;
  Assignment assignment_;
  std::vector<Moment> moments_;
  std::vector<Adjoint> adjoints_;
  struct {
    Kernel G;
    double cosine = 0;
  } seen_;  // matrices and residuals hand one kernel on, up to its scale
  std::vector<std::size_t> last_use_;
  std::vector<double> squares_;     // E |d theta|^2
  std::vector<double> deviations_;  // its standard deviation over draws
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

Expected<void> check_kernels(const Graph& graph, const Architecture& a, const Batch& batch) {
  const std::vector<Index> rows = graph.rows(batch);
  const double tokens = static_cast<double>(batch.tokens());
  double numbers = 60 * tokens * tokens;  // at work in one block
  bool images = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double square = static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
    const AnyOp& op = graph.nodes[i].op;
    images = images || rows[i] != batch.tokens();
    numbers += rows[i] != batch.tokens()                                                       ? 3 * square
               : std::holds_alternative<Residual>(op) || std::holds_alternative<Attention>(op) ? 2 * square
                                                                                               : 0;
  }
  const double needed = 8 * numbers;
  const auto available = static_cast<double>(available_memory());
  if (needed <= available) return {};
  const double share = std::sqrt(available / needed) * 0.9;
  if (images) {
    const auto fits = static_cast<Index>(share * static_cast<double>(batch.sequences));
    return fail(fmt::format("{}: predicting {} images needs about {:.1f} GB of memory, {:.1f} GB are available", show(a.name),
                            batch.sequences, needed * 1e-9, available * 1e-9),
                fmt::format("it grows with the square of the pixels of all images: {}",
                            fits > 0 ? fmt::format("--batch {} fits", fits) : "a smaller --set image"));
  }
  return fail(fmt::format("{}: predicting {} tokens needs about {:.1f} GB of memory, {:.1f} GB are available", show(a.name), batch.tokens(),
                          needed * 1e-9, available * 1e-9),
              fmt::format("it grows with the square of the tokens: --seq-len {} fits",
                          static_cast<Index>(share * static_cast<double>(batch.length))));
}

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme, const PredictOptions& options) {
  return predict(graph, a, batch, Assignment(graph, a, scheme), std::string(scheme.name), options);
}

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws, const std::string& name,
               const PredictOptions& options) {
  return Walk(graph, a, batch, laws, name).run(options);
}

}  // namespace stepzero
