// The moment doors of experts.
//
// The moments of one feed-forward are those of the ops it is made of. What is left is which tokens share experts: M_ts = E sum_e g_te g_se.
// Gates are sampled as a model makes them, logits from their kernel and the router's rule on top, until M and R are sure enough.
#include <array>
#include <cmath>
#include <utility>

#include "stepzero/ops/drawn_sums.hpp"
#include "stepzero/ops/experts.hpp"
#include "stepzero/ops/finite/add_adjoints.hpp"
#include "stepzero/ops/finite/function.hpp"
#include "stepzero/ops/finite/linear.hpp"
#include "stepzero/ops/finite/multiply.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/scale.hpp"

namespace stepzero {

namespace {

// Experts are drawn alike; where a file's are not, the mean expert stands for them.
Law mean_law(const Experts& op, std::span<const Law> theta, Index part) {
  Law mean;
  for (Index e = 0; e < op.routing.experts; ++e) {
    const Law& one = theta[static_cast<std::size_t>(
        part < op.matrices() ? op.matrices() * e + part : op.matrices() * op.routing.experts + 2 * e + part - op.matrices())];
    mean.mean += one.mean / static_cast<double>(op.routing.experts);
    mean.variance += one.variance / static_cast<double>(op.routing.experts);
  }
  return mean;
}

// The moments of one gated feed-forward that every token goes through.
class FeedForward {
 public:
  FeedForward(const Experts& op, const Batch& batch, const DownWire& x, std::span<const Law> theta)
      : op_(op),
        batch_(batch),
        x_(x),
        laws_{mean_law(op, theta, 0), mean_law(op, theta, op.fused ? 0 : 1), mean_law(op, theta, op.matrices() - 1)} {
    if (op.bias) in_bias_ = mean_law(op, theta, op.matrices()), out_bias_ = mean_law(op, theta, op.matrices() + 1);
    gate_ = push(in(), {&x_}, {laws_[0], in_bias_});
    up_ = push(in(), {&x_}, {laws_[1], in_bias_});
    if (op.most > 0)
      free_gate_ = std::exchange(gate_, push(limit(), {&gate_}, {})), free_up_ = std::exchange(up_, push(limit(), {&up_}, {}));
    if (op.offset != 0) up_.K = up_.K.shifted(op.offset * op.offset), up_.mean.assign(static_cast<std::size_t>(up_.K.tokens()), op.offset);
    act_ = std::visit([&](const auto& f) { return push(f, {&gate_}, {}); }, op.act);
    act_.width = op.ffn;
    product_ = push(Multiply{op.ffn}, {&act_, &up_}, {});
    y_ = push(out(), {&product_}, {laws_[2], out_bias_});
  }

  [[nodiscard]] const DownWire& y() const { return y_; }

  // dx[0], and E||.||^2 of the matrices and biases of all experts together
  [[nodiscard]] Pulled pull(const UpWire& dy) const {
    const Pulled o = pull(out(), {&product_}, {laws_[2], out_bias_}, y_, dy);
    const Pulled m = pull(Multiply{op_.ffn}, {&act_, &up_}, {}, product_, o.dx[0]);
    Pulled a = std::visit([&](const auto& f) { return pull(f, {&gate_}, {}, act_, m.dx[0]); }, op_.act);
    UpWire dv = m.dx[1];
    if (op_.most > 0) a = pull(limit(), {&free_gate_}, {}, gate_, a.dx[0]), dv = pull(limit(), {&free_up_}, {}, up_, dv).dx[0];
    const Pulled g = pull(in(), {&x_}, {laws_[0], in_bias_}, op_.most > 0 ? free_gate_ : gate_, a.dx[0]);
    const Pulled v = pull(in(), {&x_}, {laws_[1], in_bias_}, op_.most > 0 ? free_up_ : up_, dv);
    const Spread &of_o = o.spread[0], &of_g = g.spread[0], &of_v = v.spread[0];
    UpWire dx = g.dx[0];
    add_adjoints(dx, v.dx[0], op_.width);
    return {{std::move(dx)},
            op_.bias    ? std::vector<double>{g.dtheta[0] + v.dtheta[0], o.dtheta[0], g.dtheta[1] + v.dtheta[1], o.dtheta[1]}
            : op_.fused ? std::vector<double>{g.dtheta[0] + v.dtheta[0], o.dtheta[0]}
                        : std::vector<double>{g.dtheta[0], v.dtheta[0], o.dtheta[0]},
            {{.level = of_o.level + std::max(of_g.level, of_v.level), .noise = of_o.noise + std::max(of_g.noise, of_v.noise)}}};
  }

 private:
  using Wires = std::vector<const DownWire*>;
  using Laws = std::vector<Law>;
  [[nodiscard]] Linear in() const { return {.in = op_.width, .out = op_.ffn, .bias = op_.bias}; }
  [[nodiscard]] Linear out() const { return {.in = op_.ffn, .out = op_.width, .bias = op_.bias}; }
  // The gate is cut above alone; what it is below makes no difference to functions that end in 0 there.
  [[nodiscard]] Clip limit() const { return {.width = op_.ffn, .most = op_.most}; }
  template <class O>
  [[nodiscard]] DownWire push(const O& op, const Wires& x, const Laws& theta) const {
    DownWire y = push_finite(op, PushDoor{batch_, x, theta});
    y.width = op.channels();
    return y;
  }
  template <class O>
  [[nodiscard]] Pulled pull(const O& op, const Wires& x, const Laws& theta, const DownWire& y, const UpWire& dy) const {
    return pull_finite(op, PullDoor{batch_, x, theta, y, dy});
  }

  const Experts& op_;
  const Batch& batch_;
  const DownWire& x_;
  std::array<Law, 3> laws_;
  Law in_bias_, out_bias_;
  DownWire free_gate_, free_up_, gate_, up_, act_, product_, y_;
};

// Gates of a synthetic router, (T, E) with zeros where an expert was not chosen.
class Gates {
 public:
  static constexpr Index together = 8;     // draws before the errors are looked at
  static constexpr double enough = 0.005;  // relative standard error

  Gates(const Experts& op, const Batch& batch, const DownWire& logits, std::span<const Law> theta, Draws draws)
      : routing_(op.routing),
        correction_(op.routing.corrected ? theta.back() : Law{}),
        place_(draws.place),
        kernels_(logits, logits.shared_noise(), batch.length, draws.place) {
    const double t = static_cast<double>(batch.tokens()), e = static_cast<double>(routing_.experts);
    const double one = t * (8 * t * (t + e) + 100 * e) + 1e6;  // floating-point operations of a draw, about
    most_ = std::clamp<Index>(static_cast<Index>(draws.effort / one) / together, 2, 64) * together;
  }

  struct Draw {
    Tensor<float> logits, which, gates;
  };
  [[nodiscard]] Draw draw(Index i) const {
    const Tensor<float> factor = kernels_.root(i);
    Draw d{product(Trans::no, Trans::no, factor, node_normals(place_, "router", i, factor.cols(), routing_.experts)),
           Tensor<float>(factor.rows(), routing_.chosen), Tensor<float>(factor.rows(), routing_.experts)};
    Tensor<float> c = node_normals(place_, "correction", i, 1, routing_.experts);
    for (Index e = 0; e < routing_.experts; ++e) c(0, e) = static_cast<float>(correction_.mean + std::sqrt(correction_.variance) * c(0, e));
    std::vector<float> weight(static_cast<std::size_t>(routing_.chosen));
    std::fill_n(d.gates.data(), d.gates.size(), 0.0F);
    for (Index t = 0; t < factor.rows(); ++t) {
      float* which = d.which.view().row(t);
      routing_.choose(d.logits.view().row(t), routing_.corrected ? c.data() : nullptr, which, weight.data());
      for (Index j = 0; j < routing_.chosen; ++j) d.gates(t, static_cast<Index>(which[j])) = weight[static_cast<std::size_t>(j)];
    }
    return d;
  }
  [[nodiscard]] Index most() const { return most_; }

 private:
  const Routing& routing_;
  Law correction_;
  std::uint64_t place_;
  KernelDraw kernels_;
  Index most_ = 0;
};

// The mean over draws of X X', and of a few numbers of each draw.
struct MeanGram {
  Matrix sum;
  double draws = 0;
  explicit MeanGram(Index tokens) : sum(zeros(tokens)) {}

  void add(const Tensor<float>& gram) {
    stepzero::add(gram, sum);
    ++draws;
  }
  [[nodiscard]] Kernel times(const Kernel& other) const {
    return Kernel::from(sum.rows(), [&](Index t, Index s) { return sum(t, s) / draws * other(t, s); });
  }
};

// From gradients of gates to gradients of logits: dr_t = sum_j J_tj dg_tj over the chosen. Gradients of different experts' gates are
// independent, so E<dr_t, dr_s> is the sum of <J_tj, J_sl> over the experts that both tokens chose, times E dg_t dg_s.
Tensor<float> router_gram(const Routing& routing, const Gates::Draw& d) {
  const Index tokens = d.logits.rows(), k = routing.chosen;
  Tensor<float> J(tokens * k, routing.experts), out(tokens, tokens);
  std::vector<float> one(static_cast<std::size_t>(k), 0.0F);
  for (Index i = 0; i < tokens * k; ++i) {
    one[static_cast<std::size_t>(i % k)] = 1;
    routing.backward(d.logits.view().row(i / k), d.which.view().row(i / k), one.data(), J.view().row(i));
    one[static_cast<std::size_t>(i % k)] = 0;
  }
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s <= t; ++s) {
      float sum = 0;
      for (Index j = 0; j < k; ++j) {
        for (Index l = 0; l < k; ++l) {
          if (d.which(t, j) == d.which(s, l)) sum += dot_row(J.view().row(t * k + j), J.view().row(s * k + l), routing.experts);
        }
      }
      out(t, s) = out(s, t) = sum;
    }
  }
  return out;
}

// K o G, in units of its largest entry
Tensor<float> product_of(const Kernel& K, const Kernel& G) {
  Tensor<float> out(K.tokens(), K.tokens());
  double top = 0;
  for (Index t = 0; t < K.tokens(); ++t) top = std::max(top, K(t, t) * G(t, t));
  for (Index t = 0; t < K.tokens(); ++t) {
    for (Index s = 0; s < K.tokens(); ++s) out(t, s) = static_cast<float>(top > 0 ? K(t, s) * G(t, s) / top : 0);
  }
  return out;
}

// sum_ts g_te g_se W_ts for each expert: its tokens' part of a weight's squared gradient. 0 for an expert that no token chose.
std::vector<double> each_expert(const Tensor<float>& W, const Tensor<float>& gates) {
  const Tensor<float> Wg = product(Trans::no, Trans::no, W, gates);
  std::vector<double> sum(static_cast<std::size_t>(gates.cols()), 0.0);
  for (Index t = 0; t < gates.rows(); ++t) {
    for (Index e = 0; e < gates.cols(); ++e) sum[static_cast<std::size_t>(e)] += static_cast<double>(gates(t, e) * Wg(t, e));
  }
  return sum;
}

// Relative variance over draws, and whether their mean is known well enough.
double relative(const Running& r) { return r.mean > 0 ? r.variance() / (r.mean * r.mean) : 0; }
bool sure(const Running& r, double times = 1) { return r.error() <= times * Gates::enough * r.mean; }

// sum_t and sum_ts of A_ts B_ts
std::array<double, 2> sums(const Tensor<float>& a, const Kernel& b) {
  double own = 0, all = 0;
  for (Index t = 0; t < a.rows(); ++t) {
    own += static_cast<double>(a(t, t)) * b(t, t);
    for (Index s = 0; s < a.rows(); ++s) all += static_cast<double>(a(t, s)) * b(t, s);
  }
  return {own, all};
}

}  // namespace

DownWire Experts::push(const PushDoor& p) const {
  const Index tokens = p.batch.tokens();
  const double n = static_cast<double>(tokens);
  const FeedForward one(*this, p.batch, *p.x[0], p.theta);
  const Gates gates(*this, p.batch, *p.x[1], p.theta, p.draws);
  MeanGram meet(tokens);
  Running own, all, apart;
  std::vector<Running> of_token(static_cast<std::size_t>(tokens));
  std::vector<Tensor<float>> slots(Gates::together);
  draw_until_sure(
      gates.most(), Gates::together, [&](Index i, Index slot) { slots[static_cast<std::size_t>(slot)] = gram(gates.draw(i).gates); },
      [&](Index) {
        for (const Tensor<float>& M : slots) {
          meet.add(M);
          const auto [diagonal, sum] = sums(M, one.y().K);
          own.add(diagonal);
          all.add(sum);
          apart.add(diagonal / n - sum / (n * n));
          for (Index t = 0; t < tokens; ++t) of_token[static_cast<std::size_t>(t)].add(static_cast<double>(M(t, t)));
        }
        return sure(own) && sure(all);
      });
  DownWire y = one.y();
  y.K = meet.times(one.y().K);  // (11)
  y.f.drift += relative(own);
  for (const Running& r : of_token) y.f.token_drift += relative(r) / n;
  if (tokens > 1) y.f.swing += relative(apart);
  return y;
}

Pulled Experts::pull(const PullDoor& p) const {
  const Index tokens = p.batch.tokens();
  const FeedForward one(*this, p.batch, *p.x[0], p.theta);
  const Gates gates(*this, p.batch, *p.x[1], p.theta, p.draws);
  const Kernel field = Kernel::from(tokens, [&](Index t, Index s) { return one.y().K(t, s) * p.dy.G(t, s); });
  const Tensor<float> weight = product_of(p.x[0]->K, p.dy.G);
  MeanGram meet(tokens), router(tokens);
  Running own, all, routed, expert;
  struct Slot {
    Tensor<float> meet, router;
    std::vector<double> experts;
  };
  std::vector<Slot> slots(Gates::together);
  draw_until_sure(
      gates.most(), Gates::together,
      [&](Index i, Index slot) {
        const Gates::Draw d = gates.draw(i);
        slots[static_cast<std::size_t>(slot)] = {gram(d.gates), router_gram(routing, d), each_expert(weight, d.gates)};
      },
      [&](Index) {
        for (const Slot& s : slots) {
          meet.add(s.meet);
          router.add(s.router);
          const auto [diagonal, sum] = sums(s.meet, p.dy.G);
          own.add(diagonal);
          all.add(sum);
          routed.add(sums(s.router, field)[0]);
          for (const double squares : s.experts) expert.add(squares);
        }
        return sure(own) && sure(all) && sure(routed, 4);
      });
  Pulled dense = one.pull({Adjoint{meet.times(p.dy.G)}, p.dy.r});        // (12)
  Pulled up{{std::move(dense.dx[0]), UpWire(router.times(field))}, {}};  // (13)
  up.dx[1].r.stretch = p.dy.r.stretch;
  up.spread = {dense.spread[0], {.level = relative(routed)}};
  up.spread[0].level += relative(own);
  const double share = 1 / static_cast<double>(routing.experts);
  for (Index e = 0; e < routing.experts; ++e) {
    for (std::size_t i = 0; std::cmp_less(i, matrices()); ++i) up.dtheta.push_back(share * dense.dtheta[i]);
  }
  for (Index e = 0; bias && e < routing.experts; ++e) {
    for (std::size_t i = 2; i < 4; ++i) up.dtheta.push_back(share * dense.dtheta[i]);
  }
  if (routing.corrected) up.dtheta.push_back(0);
  up.levels.assign(up.dtheta.size(), relative(expert));
  return up;
}

}  // namespace stepzero
