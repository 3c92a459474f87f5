#include "stepzero/theory/predict.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/memory.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/questions.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/signal/describe.hpp"
#include "stepzero/theory/predict_drawn.hpp"

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

// Predicts a signal by one walk down and one up.
class Recorder {
 public:
  Recorder(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws, const std::string& name,
           const PredictOptions& options)
      : graph_(graph),
        batch_(batch),
        laws_(laws),
        options_(options),
        signal_(describe(graph, a, batch)),
        theta_(laws_of(graph, laws)),
        walk_(graph, batch, theta_,
              {.order = options.order == Order::limit ? Order::limit : Order::fluctuations,
               .keep_all = batch.tokens() <= 256,
               .effort = [this](std::size_t node, bool down) { return down ? draws_down(node) : draws(node); },
               .without = options.without}) {
    signal_.scheme = name;
    samplers_ = static_cast<double>(std::ranges::count_if(graph.nodes, [](const Node& n) { return samples(n.op); }));
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      signal_.parameters[i].std.predicted = laws.std(i);
      signal_.parameters[i].std.spread = laws.std(i) / std::sqrt(2 * static_cast<double>(graph.params[i].size()));
    }
  }

  Signal run() {
    std::size_t attention = 0;
    const std::size_t last = graph_.nodes.size() - 1;
    const double nodes = static_cast<double>(graph_.nodes.size());
    walk_.down([&](std::size_t i, const DownWire& m) {
      see_down(i, m, attention);
      tell(0.5 * static_cast<double>(i) / nodes);
    });
    if (options_.jacobians) jacobians();
    const Kernel start = Kernel::from(batch_.tokens(), [](Index, Index) { return 1.0; });
    walk_.up(last, start, true, [&](std::size_t i, const UpWire& d, const Spread& spread) {
      if (i != last) record(signal_.nodes[i], d, spread, channels_of(graph_.nodes[i].op));
      tell(1 - 0.5 * static_cast<double>(i) / nodes);
    });
    parameters();
    if (options_.order == Order::draws && options_.effort >= 1)
      signal_.kernel_draws = refine_by_draws(graph_, batch_, laws_, signal_, [&](double share) { tell_of_draws(share); });
    fill_growth(signal_, &Value::predicted);
    if (options_.order == Order::limit) forget_spreads();
    if (options_.progress) options_.progress(1);
    return std::move(signal_);
  }

 private:
  // The walk is the first half of a prediction that may draw.
  void tell(double share) const {
    if (options_.progress) options_.progress(options_.order == Order::draws ? share / 2 : share);
  }
  void tell_of_draws(double share) const {
    if (options_.progress) options_.progress((1 + share) / 2);
  }

  // At infinite width every draw is the same.
  void forget_spreads() {
    for_each_value(signal_, [](Value& value, Average, const auto&, const char*) { value.spread.reset(); });
    for (JacobianSignal& j : signal_.jacobians) j.square.spread.reset();
  }

  [[nodiscard]] double effort() const {
    const double tokens = static_cast<double>(batch_.tokens());
    // about a second on two cores; more for many tokens, and for few, where heads differ more from draw to draw
    return options_.effort * 6e10 * std::clamp(tokens * tokens / (128 * 128), 1.0, 4.0) * std::clamp(128 / tokens, 1.0, 2.5);
  }
  [[nodiscard]] Draws draws(std::size_t node) const { return {node, effort() / std::max(1.0, samplers_)}; }
  // On the way down half of the effort goes by 1, 1/2, 1/3, ...: the error of the first sampled heads is in all layers behind them.
  [[nodiscard]] Draws draws_down(std::size_t node) const {
    Draws out = draws(node);
    if (!samples(graph_.nodes[node].op)) return out;
    double place = 0, before = 0, sum = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!samples(graph_.nodes[i].op)) continue;
      if (i == node) place = before;
      sum += 1 / ++before;
    }
    out.effort = out.effort / 2 + effort() / 2 / (sum * (place + 1));
    return out;
  }

  // A Law is mean and variance. For orthogonal matrices the error of that falls with the width, for other structures it does not.
  [[nodiscard]] std::string grade_of(const Node& node) const {
    using S = Distribution::Structure;
    const std::string grade = to_string(std::visit([](const auto& op) { return op.grade; }, node.op));
    const S s = node.params.empty() ? S::none : laws_.of(node.params[0]).structure;
    if (s == S::none || grade == to_string(Grade::approximate)) return grade;
    return to_string(s == S::orthogonal ? Grade::large_width : Grade::approximate);
  }

  static void set(Value& to, double predicted, double spread) {
    to.predicted = predicted;
    to.spread = spread;
  }

  void see_down(std::size_t i, const DownWire& m, std::size_t& attention) {
    if (i + 1 == graph_.nodes.size()) {
      double loss = 0;
      for (const double share : m.mean) loss += share;
      const auto* note = note_of<LossNote>(m);
      set(signal_.loss, loss, note != nullptr ? std::sqrt(note->variance) : 0);
      return;
    }
    record(i, m);
    signal_.nodes[i].grade = grade_of(graph_.nodes[i]);
    if (const auto* heads = note_of<AttentionNote>(m)) record(signal_.attention[attention++], *heads);
  }

  static void record(AttentionSignal& to, const AttentionNote& heads) {
    set(to.score_variance, heads.summary.score_variance, heads.spread.score_variance);
    set(to.entropy, heads.summary.entropy, heads.spread.entropy);
    set(to.sum_squares, heads.summary.sum_squares, heads.spread.sum_squares);
  }

  void record(std::size_t i, const DownWire& m) {
    NodeSignal& to = signal_.nodes[i];
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
    const bool same = square > 0 && before != i && m.K.same_up_to_scale(walk_.moment(before).K);  // a product with a matrix
    const double cosine = same ? *signal_.nodes[before].forward.token_cosine.predicted
                               : std::min(m.f.lift() * token_cosine(m.K, batch_.sequences, m.f.shrink(m.width)), 1.0);
    set(to.forward.token_cosine, cosine, cosine_spread(cosine, m.f.noise, length, m.f.swing));
  }

  void record(NodeSignal& to, const UpWire& d, const Spread& spread, Index channels) {
    const double squares = d.G.trace();
    const double numbers = static_cast<double>(d.G.tokens() * channels);
    const double deviation = std::sqrt(spread.level);
    set(to.backward.norm, std::sqrt(squares), std::sqrt(squares) * deviation / 2);
    set(to.backward.second_moment, squares / numbers, squares / numbers * deviation);
    const Index length = d.G.tokens() / batch_.sequences;
    if (length == 1) return;
    if (!d.G.same_up_to_scale(seen_.G)) seen_ = {d.G, token_cosine(d.G, batch_.sequences)};
    set(to.backward.token_cosine, seen_.cosine, cosine_spread(seen_.cosine, spread.noise, length));
  }

  void parameters() {
    double total = 0, deviation = 0;
    for (std::size_t i = 0; i < signal_.parameters.size(); ++i) {
      if (signal_.parameters[i].frozen || walk_.untold(i)) continue;
      const double squares = walk_.squares()[i], varies = walk_.deviations()[i];
      Value& norm = signal_.parameters[i].gradient_norm;
      norm.predicted = std::sqrt(squares);
      norm.spread = squares > 0 ? varies / (2 * *norm.predicted) : 0;
      total += squares;
      deviation += varies;
    }
    signal_.gradient_norm.predicted = std::sqrt(total);
    if (total > 0) signal_.gradient_norm.spread = deviation / (2 * std::sqrt(total));
  }

  // How a change of each stream arrives at the last one: the gradient of a random direction there, followed up.
  void jacobians() {
    std::size_t end = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].is_stream()) end = i;
    }
    const Index rows = graph_.rows(batch_)[end];
    const double tokens = static_cast<double>(rows);
    const Kernel start = Kernel::from(rows, [&](Index t, Index s) { return t == s ? 1 / tokens : 0; });
    walk_.up(end, start, false, [&](std::size_t i, const UpWire& d, const Spread& spread) {
      if (!graph_.nodes[i].is_stream() || i == end) return;
      signal_.jacobians.push_back({graph_.nodes[i].name, graph_.nodes[end].name, {}});
      set(signal_.jacobians.back().square, d.G.trace(), d.G.trace() * std::sqrt(spread.level));
    });
  }

  const Graph& graph_;
  const Batch& batch_;
  const Assignment& laws_;
  const PredictOptions& options_;
  Signal signal_;
  NodeLaws theta_;
  MomentWalk walk_;
  double samplers_ = 0;  // nodes that share the effort
  struct {
    Kernel G;
    double cosine = 0;
  } seen_;  // many wires share one kernel up to a factor: its cosine is computed once
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
  double numbers = 60 * tokens * tokens;  // in use at once within a block
  bool images = false;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double square = static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
    const AnyOp& op = graph.nodes[i].op;
    images = images || rows[i] != batch.tokens();
    numbers += rows[i] != batch.tokens() ? 3 * square : remake_of(op) == Remake::never ? 2 * square : 0;
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
  return Recorder(graph, a, batch, laws, name, options).run();
}

}  // namespace stepzero
