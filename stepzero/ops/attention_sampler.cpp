// The moment doors of attention from synthetic heads.
//
// A head is drawn from the kernels of its inputs and goes through what the model does to it: norm, rotation, scale, cap,
// slopes, mask, softmax. Given its weights A the rest is known in closed form or is one Gaussian field:
//     K_o = (A F)(A F)',  G_v = (A' R)(A' R)',        F F' = Kv, R R' = G
//     dA  = R Z F',  Z iid normal: the field with covariance G (x) Kv, and dA goes back through the softmax to q and k,
// whose Gram matrices in the mean over Z are known too (attention_expect.hpp); what rotations make of them is drawn.
// One draw of a model shows a kernel that differs from its mean: F is drawn anew (Bartlett) at the number of channels
// that the wire's noise stands for. Heads are drawn until the standard errors of what they yield are small enough.
#include <array>
#include <cmath>
#include <vector>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/ops/attention_heads.hpp"
#include "stepzero/ops/attention_moments.hpp"
#include "stepzero/ops/head_variance.hpp"

namespace stepzero {

namespace {

class Sampler : public HeadMaker {
 public:
  static constexpr double enough = 0.0015;   // relative standard error of a second moment; of the entropy in nats
  static constexpr double enough_qk = 0.01;  // and of what reaches q and k

  Sampler(const Attention& op, const Batch& batch, std::span<const DownWire* const> x, std::span<const Law> theta, Draws draws)
      : HeadMaker(op, batch, x, theta, draws), spread_(spread(v_.K, batch)) {
    const double t = static_cast<double>(tokens_), dk = static_cast<double>(op.key_dim);
    together_ = tokens_ <= 64 ? 16 : 4;  // small heads do not wait for each other
    // A third of the effort goes down: what it yields is what everything behind reads.
    constexpr double any_head = 4e6;  // what a head costs however short the sequence
    const auto affords = [&](double share, double operations) {
      return std::clamp<Index>(static_cast<Index>(share * draws.effort / (operations + any_head)) / together_, 1, 4096 / together_) *
             together_;
    };
    most_down_ = affords(1.0 / 3, 2 * t * t * (3 * t + 3 * dk));
    most_up_ = affords(2.0 / 3, 2 * t * t * (17 * t + 9 * dk));
  }

  [[nodiscard]] DownWire push() const {
    struct Slot {
      Tensor<float> K;
      AttentionSummary summary;
      double size, spread;  // of the kernel that was drawn
      Tensor<float> a;      // the head's weights
    };
    std::vector<Slot> slots(static_cast<std::size_t>(together_));
    for (Slot& s : slots) s.K = Tensor<float>(tokens_, tokens_);
    Matrix K = zeros(tokens_);
    Seen<5> seen;
    AttentionSummary sum;
    Pairs pairs(tokens_);
    Power<1> grows;
    MeanWeights weights;
    const double apart =
        1 - 1 / static_cast<double>(op_.heads);  // heads differ in their mean score: it is in the variance over all of them
    Index heads = 0;
    double size = 0;
    draw_until_sure(
        most_down_, together_,
        [&](Index i, Index slot) {
          Slot& to = slots[static_cast<std::size_t>(slot)];
          Head h = head(i);
          gram(mixed(h), to.K);
          to.size = std::max<double>(sum_squares(View<const float>(h.factor)), 1e-300);  // values may be 0
          to.spread = spread_of(h);
          to.summary = h.op.summary(batch_, View<const float>(h.keep.view()));
          to.a = std::move(h.a);
        },
        [&](Index n) {
          heads = n;
          for (const Slot& s : slots) {
            add(s.K, K);
            size += s.size;
            if (few()) pairs.add(s.K);
            if (op_.kv_heads < op_.heads) weights.add(s.a);
            grows.add(s.spread, {trace(s.K) / s.size});
            const double variance = s.summary.score_variance + apart * s.summary.mean_score * s.summary.mean_score;
            sum.score_variance += variance;
            sum.entropy += s.summary.entropy;
            sum.sum_squares += s.summary.sum_squares;
            seen.add({trace(s.K) / s.size, total(s.K) / (s.size * static_cast<double>(tokens_)), s.summary.entropy, variance,
                      s.summary.sum_squares});
          }
          return seen.error(0) <= enough * seen.mean(0) && seen.error(1) <= enough * seen.mean(0) && seen.error(2) <= enough;
        });
    const double share = 1 / static_cast<double>(heads);
    DownWire out;
    // the drawn kernels' mean size is known: what they are off by is taken out
    out.K = mean_of(K, v_.K.trace() / size);
    const AttentionSummary mean{sum.score_variance * share, 0, sum.entropy * share, sum.sum_squares * share};
    if (!(v_.K.trace() > 0)) {  // nothing is mixed
      out.note = AttentionNote{.summary = mean};
      return out;
    }
    // of the model's own number of heads in one draw
    const double h = static_cast<double>(op_.heads);
    const double level = seen.variance(0) / (seen.mean(0) * seen.mean(0));
    const auto [varies, lone] = few() ? pairs.sizes(K, share, level) : Pairs::Sizes{level, 0};
    out.f.token_drift = varies / h;
    out.f.drift = level / h;
    // the kernel of the values is one for all heads
    for (Index t = 0; few() && t < tokens_; ++t) {
      const double noise = pairs.noise(K, share, t - batch_.position(t), t) - v_.shared_noise() - v_.f.jitter_at(t);
      out.f.fresh.push_back(std::max(noise, 0.0) / h);
    }
    // heads that share values look at others of them: the noise of the values' own channels is that of more channels
    if (op_.kv_heads < op_.heads) {
      const double alone = 1 - static_cast<double>(op_.kv_heads) / h;
      out.f.noise = -(v_.f.noise - v_.shared_noise()) * alone * (1 - weights.overlap(v_.K, out.K));
    }
    out.f.thins = -grows(0);
    out.f.lone = std::max(lone / h, -0.5);
    out.note =
        AttentionNote{.summary = {sum.score_variance * share, 0, sum.entropy * share, sum.sum_squares * share},
                      .spread = {std::sqrt(seen.variance(3) / h), 0, std::sqrt(seen.variance(2) / h), std::sqrt(seen.variance(4) / h)}};
    return out;
  }

  [[nodiscard]] Pulled pull(const DownWire& y, const UpWire& dy) const {
    const Kernel& G = dy.G;
    const double size = G.trace() / static_cast<double>(tokens_);  // floats stay in range
    if (!(size > 0)) return {{UpWire(G), UpWire(G), UpWire(G)}, std::vector<double>((op_.buckets > 0 ? 1 : 0) + (op_.sinks ? 1 : 0), 0.0)};
    const Tensor<float> mean_up = kernels::root(G, 1 / std::sqrt(size));
    // Of each head what reaches q and k is known in the mean over the gradients that may come. Drawn gradients tell what is left:
    // what rotations make of it on the way back, and how single draws of a model vary.
    const Tensor<float> mean_field = product(Trans::yes, Trans::no, mean_up, mean_up);
    const OutputProjection projection(*this, y, dy.r);
    const bool turns = this->turns();
    const Index needed = turns || op_.buckets > 0 || op_.sinks ? most_up_ : 32;  // heads with drawn gradients
    struct Slot : Reached {
      Tensor<float> q_before, k_before, k_tail;
      double q_inner = 0, k_inner = 0;  // with the inputs' kernels: what a weight's gradient has of it
      double q_drawn = 0, k_drawn = 0;  // the same of a drawn gradient
      double table = 0;                 // of the positions' biases, drawn
      double sink = 0;
      double spread = 0;  // logarithm of what tells the drawn tokens apart
      double weight = 1;  // of the gradient in this draw
    };
    std::vector<Slot> slots(static_cast<std::size_t>(together_));
    const auto square = [&] { return Tensor<float>(tokens_, tokens_); };
    for (Slot& s : slots) s = {Reached(tokens_), square(), square(), square()};
    std::vector<Tensor<float> Slot::*> parts = {&Slot::gq, &Slot::gk, &Slot::gv, &Slot::q_before, &Slot::k_before};
    if (of_k_.tail) parts.push_back(&Slot::k_tail);
    std::vector<Matrix> sums;
    for (std::size_t i = 0; i < parts.size(); ++i) sums.push_back(zeros(tokens_));
    double q_inner = 0, k_inner = 0, table = 0, sink = 0, weights = 0;
    Seen<5> seen;
    Seen<2> drawn;
    Power<3> stretch;
    Index heads = 0;
    draw_until_sure(
        most_up_, together_,
        [&](Index i, Index slot) {
          Slot& to = slots[static_cast<std::size_t>(slot)];
          const Head h = head(i);
          to.spread = spread_of(h);
          to.weight = std::exp(dy.r.stretch * to.spread);
          const std::vector<float> w = damped(h, y, dy.r.damp, to.weight);
          const Tensor<float> up = weighed(mean_up, w, false);
          reach(h, up, weighed(mean_field, w, true), projection, to);
          const Tensor<float> V = gram(h.factor);
          const Tensor<float> of_queries = apart() ? gram(h.queries) : Tensor<float>();
          const Tensor<float>& Q = apart() ? of_queries : V;
          to.q_inner = inner(Q, to.gq);
          to.k_inner = inner(V, to.gk);
          if (i >= needed) return;
          const Sides d = turned_back(to_scores(h, up, i));
          to.table = d.table;
          to.sink = d.sink;
          gram(d.q, to.q_before);
          gram(d.k, to.k_before);
          if (of_k_.tail) gram(d.k.view().columns(op_.key_dim - of_k_.tail->channels, of_k_.tail->channels), to.k_tail);
          to.q_drawn = inner(Q, to.q_before);
          to.k_drawn = inner(V, to.k_before);
        },
        [&](Index n) {
          const Index before = heads;
          heads = n;
          parallel_for(turns ? std::ssize(parts) : 3, [&](Index i) {
            for (const Slot& s : slots) add(s.*parts[static_cast<std::size_t>(i)], sums[static_cast<std::size_t>(i)]);
          });
          for (const Slot& s : slots) {
            q_inner += turns ? s.q_drawn : s.q_inner;
            k_inner += turns ? s.k_drawn : s.k_inner;
            table += s.table;
            sink += s.sink;
            weights += s.weight;
            stretch.add(s.spread, {trace(s.gq) / s.weight, trace(s.gk) / s.weight, trace(s.gv) / s.weight});
            seen.add({trace(s.gv), s.q_inner, s.k_inner, trace(s.gq), trace(s.gk)});
            if (before < needed) drawn.add({s.q_drawn, s.k_drawn});
          }
          const auto sure = [&](std::size_t i, double error) { return seen.error(i) <= error * seen.mean(i); };
          return sure(0, enough) && sure(1, 2 * enough_qk) && sure(2, 2 * enough_qk) && sure(3, enough_qk) && sure(4, enough_qk);
        });
    const double share = size / weights;
    const auto mean = [&](std::size_t part) { return mean_of(sums[part], share); };
    const auto gain = [&](double own, const Kernel& g, const Kernel& K) {
      const double plain = frobenius(K, g);
      return plain > 0 ? own * share / plain : 1;
    };
    const auto level = [&](const auto& list, std::size_t i) {
      return list.mean(i) > 0 ? list.variance(i) / (list.mean(i) * list.mean(i) * static_cast<double>(op_.heads)) : 0;
    };
    const auto side = [&](std::size_t part, double own, const Kernel& K) {
      const Kernel g = without_rounding(mean(part));
      const Kernel before = turns ? mean(part + 3) : g;
      UpWire d(Adjoint{g}, {.stretch = stretch(part), .weight_gain = gain(own, before, K)});
      TurnedBack back{turns ? with_sizes(before, before, g).scaled(stretched(part == 0 ? of_q_ : of_k_)) : g, {}};
      if (part == 1 && of_k_.tail) back.tail = with_sizes(mean(5), mean(4), mean(1));
      d.note = std::move(back);
      return d;
    };
    Pulled out;
    out.dx.push_back(side(0, q_inner, queries_from().K));
    out.dx.push_back(side(1, k_inner, v_.K));
    out.dx.push_back({Adjoint{mean(2)}, {.stretch = stretch(2)}});
    out.spread = {{.level = level(drawn, 0)}, {.level = level(drawn, 1)}, {.level = level(seen, 0)}};
    if (op_.buckets > 0) out.dtheta.push_back(table * share);  // share: of one head, of which the sum is wanted
    if (op_.sinks) out.dtheta.push_back(sink * share);
    return out;
  }

 private:
  // The logarithm of what tells this head's tokens apart, in units of the mean.
  [[nodiscard]] double spread_of(const Head& h) const {
    const double own = sum_squares(View<const float>(centred(h.factor, batch_)));
    return spread_ > 1e-9 * v_.K.trace() && own > 0 ? std::log(own / spread_) : 0;
  }

  // How much larger the gradient at each token is as this head sees it: where its weights are sharp the token grows, and a norm behind
  // divides the gradient. A head is one of several, and the mean over heads is G.
  [[nodiscard]] std::vector<float> damped(const Head& h, const DownWire& y, double damp, double weight) const {
    std::vector<float> w(static_cast<std::size_t>(tokens_), static_cast<float>(std::sqrt(weight)));
    if (damp == 0 || !few()) return w;
    const Tensor<float> mix = mixed(h);
    const double heads = static_cast<double>(op_.heads);
    const double mean = 1 + damp * (damp + 1) / 2 * std::max(y.f.token_drift - v_.f.token_drift, 0.0) / heads;  // E u^-damp
    for (Index t = 0; t < tokens_; ++t) {
      const float* row = mix.view().row(t);
      const double u = y.K(t, t) > 0 ? 1 + (static_cast<double>(dot_row(row, row, mix.cols())) / y.K(t, t) - 1) / heads : 1;
      w[static_cast<std::size_t>(t)] *= static_cast<float>(std::sqrt(std::pow(u, -damp) / mean));
    }
    return w;
  }
  // x with its columns, and where `rows` says so its rows, that much larger
  static Tensor<float> weighed(const Tensor<float>& x, const std::vector<float>& w, bool rows) {
    Tensor<float> out(x.rows(), x.cols());
    for (Index t = 0; t < x.rows(); ++t) {
      const float own = rows ? w[static_cast<std::size_t>(t)] : 1;
      for (Index s = 0; s < x.cols(); ++s) out(t, s) = x(t, s) * own * w[static_cast<std::size_t>(s)];
    }
    return out;
  }
  // A rotation that stretches does so on the way back too.
  [[nodiscard]] double stretched(const HeadNote& heads) const {
    if (heads.rotary == nullptr) return 1;
    const double turned = static_cast<double>(heads.rotary->turned), all = static_cast<double>(heads.rotary->head_dim);
    return (turned * heads.rotary->stretch * heads.rotary->stretch + all - turned) / all;
  }
  // With more than 32 heads a single one no longer shows in their mean.
  [[nodiscard]] bool few() const { return op_.heads <= 32; }

  double spread_;       // of the kernel of v
  Index together_ = 4;  // heads drawn before the errors are looked at
  Index most_down_ = 0, most_up_ = 0;
};

}  // namespace

DownWire push_sampled(const Attention& op, const PushDoor& p) { return Sampler(op, p.batch, p.x, p.theta, p.draws).push(); }

Matrix mean_weights(const Attention& op, const PushDoor& p) {
  constexpr Index heads = 64, together = 4;
  const HeadMaker maker(op, p.batch, p.x, p.theta, p.draws);
  Matrix sum = zeros(p.batch.tokens());
  std::vector<Tensor<float>> slots(together);
  draw_until_sure(
      heads, together, [&](Index i, Index slot) { slots[static_cast<std::size_t>(slot)] = whole(maker.head(i).a, p.batch); },
      [&](Index) {
        for (const Tensor<float>& a : slots) add(a, sum);
        return false;
      });
  for (Index i = 0; i < sum.size(); ++i) sum.data()[i] /= static_cast<double>(heads);
  return sum;
}

Pulled pull_sampled(const Attention& op, const PullDoor& p) { return Sampler(op, p.batch, p.x, p.theta, p.draws).pull(p.y, p.dy); }

}  // namespace stepzero
