#pragma once
// What       The loss: minus the log-probability of each target, averaged over the scored positions.
// Shapes     x (T, vocab) logits; y (T, 1): each position's share of the loss, 0 where it is not scored. Loss = sum_t y_t.
// Forward    z_t = ln sum_v exp(x_tv)                                       (1)
//            y_t = (z_t - x_t,target) / N,  N = number of scored positions  (2)
// Backward   dx_tv = (exp(x_tv - z_t) - [v = target]) dy_t / N              (3)
// Push       E y_t = (ln((V - 1) e^(v/2) + e^mu) - [target = own id] mu) / N, v = K_tt, mu = mean logit of the own id      (4)
// Pull       G_ts = ([y_t = y_s] - p_t(y_s) - p_s(y_t) + <p_t, p_s>) / N^2                                              (5)
// Assumes    logits Gaussian over the vocabulary, apart from that of the token's own id under a tied head
// Derived in docs/derivations/cross_entropy.md
#include <algorithm>
#include <cmath>

#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

// For the report: the variance of the loss over draws.
struct LossNote {
  double variance = 0;
};

struct CrossEntropy {
  static constexpr const char* kind = "cross_entropy";
  static constexpr Grade grade = Grade::large_width;
  static constexpr bool row_wise = true;
  Index vocab = 0;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return 1; }
  [[nodiscard]] Index keep() const { return 1; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    using std::log;
    const S share = S(1 / scored(p.batch));
    parallel_for(p.y.rows, [&](Index t) {
      const S* x = p.x[0].row(t);
      const S top = max_row(x, vocab);
      const S z = top + log(exp_sum_row(x, top, vocab));  // (1)
      p.keep(t, 0) = z;
      const Index target = p.batch.targets[p.first + t];
      p.y(t, 0) = target < 0 ? S(0) : (z - x[target]) * share;  // (2)
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    const double n = scored(p.batch);
    parallel_for(p.dy.rows, [&](Index t) {
      const Index target = p.batch.targets[p.first + t];
      const S d = target < 0 ? S(0) : p.dy(t, 0) * S(1 / n);
      gradient_row(p.x[0].row(t), p.keep(t, 0), d, target, p.dx[0], t);
    });
  }

  // Where single logits decide, the softmax is drawn for every token, down and up (cross_entropy_moments.cpp).
  [[nodiscard]] double draw_cost(const Batch& batch, double variance) const {
    const double v = static_cast<double>(vocab);
    const bool drawn = !(std::expm1(1.2 * variance) < 0.01 * v);
    return drawn ? 2 * static_cast<double>(batch.tokens()) * std::max(8192.0, 32 * v) * 400 : 0;
  }

  [[nodiscard]] Moment push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;
  [[nodiscard]] std::any note(const PushDoor& p) const;  // a LossNote

 private:
  static double scored(const Batch& batch) {
    const auto n = std::count_if(batch.targets.begin(), batch.targets.end(), [](auto id) { return id >= 0; });
    return static_cast<double>(std::max<std::ptrdiff_t>(n, 1));
  }

  template <class S>
  void gradient_row(const S* x, S z, S d, Index target, const Into<S>& dx, Index t) const {
    S* to = dx.d.row(t);
    if (target < 0) {
      if (!dx.add) std::fill_n(to, vocab, S(0));
      return;
    }
    if (dx.add) {
      for (Index v = 0; v < vocab; ++v) to[v] += exp(x[v] - z) * d;
    } else {
      exp_row(x, z, to, vocab);
      for (Index v = 0; v < vocab; ++v) to[v] *= d;
    }
    to[target] -= d;  // (3)
  }
};
static_assert(Op<CrossEntropy>);

}  // namespace stepzero
