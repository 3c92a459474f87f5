#pragma once
// What       y = g o x: a learned gain on a branch before it is added to the stream, one number for each channel
//            (LayerScale) or one for all (ReZero, SkipInit).
// Shapes     x, y (T, n); g (n), or (1).
// Forward    y_ti = g_i x_ti                                                (1)
// Backward   dx_ti = g_i dy_ti                                              (2)
//            dg_i = sum_t dy_ti x_ti;  one gain: summed over i too          (3)
// Push       L_ts = E[g^2] K_ts                                             (4)
// Pull       H_ts = E[g^2] G_ts,  E||dg||^2 = sum_ts G_ts K_ts              (5)
// Assumes    dy independent of x
// Derived in docs/derivations/gain.md
#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Gain {
  static constexpr const char* kind = "gain";
  static constexpr Grade grade = Grade::exact;
  Index width = 0;
  bool one = false;  // one gain for all channels

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    const Index n = one ? 1 : width;
    return {{1, n, 1, n}};
  }

  template <class S>
  void forward(const Down<S>& p) const {
    multiply(p.x[0], p.theta[0], Into<S>{p.y});  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (p.dx[0].wanted()) multiply(p.dy, p.theta[0], p.dx[0]);  // (2)
    if (!p.dtheta[0].wanted()) return;
    if (one) {
      S sum = S(0);
      for (Index t = 0; t < p.dy.rows; ++t) sum += row_sum<S>(width, [&](Index i) { return p.dy(t, i) * p.x[0](t, i); });  // (3)
      return store(p.dtheta[0], 0, 0, sum);
    }
    // threads divide the columns, so that each element is summed in the order of tokens
    parallel_ranges(width, 128, [&](Index i0, Index i1) {
      for (Index i = i0; i < i1; ++i) {
        S sum = S(0);
        for (Index t = 0; t < p.dy.rows; ++t) sum += p.dy(t, i) * p.x[0](t, i);  // (3)
        store(p.dtheta[0], 0, i, sum);
      }
    });
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y = *p.x[0];
    y.K = y.K.scaled(p.theta[0].second_moment());  // (4)
    for (double& m : y.mean) m *= p.theta[0].mean;
    for (double& a : y.own) a *= p.theta[0].mean;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Index tokens = p.dy.G.tokens();
    double squares = 0;
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s < tokens; ++s) squares += p.dy.G(t, s) * p.x[0]->K(t, s);  // (5)
    }
    return {{UpWire(p.dy.G.scaled(p.theta[0].second_moment()))}, {squares}};
  }

 private:
  template <class S>
  void multiply(View<const S> x, View<const S> g, const Into<S>& y) const {
    parallel_ranges(x.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index i = 0; i < width; ++i) store(y, t, i, g(0, one ? 0 : i) * x(t, i));
      }
    });
  }
};
static_assert(Op<Gain>);

}  // namespace stepzero
