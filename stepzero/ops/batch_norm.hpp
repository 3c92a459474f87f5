#pragma once
// What       y = g (x - mean) / std + b, channel by channel: mean and variance over all rows of the batch, as in training.
// Shapes     x, y (R, n), the R rows of all images; g, b (n). Of one channel, u = x - mean is a vector of R numbers and
//            D = |u|^2 / R + eps. P takes the mean off: u = P x.
// Forward    h = u / sqrt(D)                                                (1)
//            y = g h + b                                                    (2)
// Backward   dx = g (P dy - h <h, dy> / R) / sqrt(D)                        (3)
//            dg = <h, dy>,  db = <1, dy>                                    (4)
// Push       L = E[g^2] E[u u' / D] + E[b^2]                                (5)
// Pull       H = E[g^2] (E[1/D] C - (E[u u'/D^2] C + C E[u u'/D^2]) / R + E[u (u' C u) u' / D^3] / R^2),  C = P G P    (6)
//            E||dg||^2 = <E[u u'/D], G>,  E||db||^2 = sum_rs G_rs           (7)
// Assumes    the channels of x Gaussian, dy independent of x
// Derived in docs/derivations/batch_norm.md
#include <cmath>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct BatchNorm {
  static constexpr const char* kind = "batch_norm";
  static constexpr Grade grade = Grade::large_width;
  Index width = 1;
  double eps = 1e-5;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {{1, width, 1, width}, {1, width, 1, width}}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(width, 16, [&](Index c0, Index c1) {
      const Statistics<S> s(p.x[0], c0, c1, eps);
      for (Index t = 0; t < p.y.rows; ++t) {
        for (Index c = c0; c < c1; ++c) p.y(t, c) = p.theta[0](0, c) * s.normed(p.x[0], t, c) + p.theta[1](0, c);  // (2)
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const S share = S(1 / static_cast<double>(p.dy.rows));
    parallel_ranges(width, 16, [&](Index c0, Index c1) {
      const Statistics<S> s(p.x[0], c0, c1, eps);
      std::vector<S> with_h(static_cast<std::size_t>(c1 - c0), S(0)), with_one = with_h;
      for (Index t = 0; t < p.dy.rows; ++t) {
        for (Index c = c0; c < c1; ++c) {
          with_h[c - c0] += s.normed(p.x[0], t, c) * p.dy(t, c);
          with_one[c - c0] += p.dy(t, c);
        }
      }
      for (Index c = c0; c < c1; ++c) {
        if (p.dtheta[0].wanted()) store(p.dtheta[0], 0, c, with_h[c - c0]);  // (4)
        if (p.dtheta[1].wanted()) store(p.dtheta[1], 0, c, with_one[c - c0]);
      }
      if (!p.dx[0].wanted()) return;
      for (Index t = 0; t < p.dy.rows; ++t) {
        for (Index c = c0; c < c1; ++c) {
          const S rest = p.dy(t, c) - share * with_one[c - c0] - s.normed(p.x[0], t, c) * with_h[c - c0] * share;
          store(p.dx[0], t, c, p.theta[0](0, c) * s.inverse[c - c0] * rest);  // (3)
        }
      }
    });
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;

 private:
  // Of channels c0 to before c1, in the order of the rows.
  template <class S>
  struct Statistics {
    Index first;
    std::vector<S> mean, inverse;  // inverse: 1 / sqrt(D)

    Statistics(View<const S> x, Index c0, Index c1, double eps)
        : first(c0), mean(static_cast<std::size_t>(c1 - c0), S(0)), inverse(static_cast<std::size_t>(c1 - c0), S(0)) {
      using std::sqrt;
      const S share = S(1 / static_cast<double>(x.rows));
      for (Index t = 0; t < x.rows; ++t) {
        for (Index c = c0; c < c1; ++c) mean[c - c0] += share * x(t, c);
      }
      for (Index t = 0; t < x.rows; ++t) {
        for (Index c = c0; c < c1; ++c) inverse[c - c0] += share * (x(t, c) - mean[c - c0]) * (x(t, c) - mean[c - c0]);
      }
      for (S& d : inverse) d = S(1) / sqrt(d + S(eps));
    }
    [[nodiscard]] S normed(View<const S> x, Index t, Index c) const { return (x(t, c) - mean[c - first]) * inverse[c - first]; }  // (1)
  };
};
static_assert(Op<BatchNorm>);

}  // namespace stepzero
