#pragma once
// What       y = a x + b f: the stream goes on, a branch is added, both with a scale (plain: 1, DeepNet: a > 1, Granite: b < 1).
// Shapes     x, f, y (T, n).
// Forward    y = a x + b f                                                  (1)
// Backward   dx = a dy                                                      (2)
//            df = b dy                                                      (3)
// Push       L_ts = a^2 K_ts + b^2 F_ts                                     (4)
// Pull       a^2 G to the stream, b^2 G to the branch                       (5)
// Assumes    the branch ends in a matrix of zero mean, so that stream and branch are uncorrelated. What single draws of the sum
//            differ by: finite/residual.hpp
// Derived in docs/derivations/residual.md
#include "stepzero/ops/position.hpp"

namespace stepzero {

struct Residual {
  static constexpr const char* kind = "residual";
  static constexpr Grade grade = Grade::large_width;
  static constexpr Remake remake = Remake::never;
  Index width = 0;
  double skip_scale = 1;
  double branch_scale = 1;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    const S a = S(skip_scale);
    const S b = S(branch_scale);
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        const S* x = p.x[0].row(t);
        const S* f = p.x[1].row(t);
        S* y = p.y.row(t);
        for (Index c = 0; c < width; ++c) y[c] = a * x[c] + b * f[c];  // (1)
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0], S(skip_scale));    // (2)
    pass_through(p.dy, p.dx[1], S(branch_scale));  // (3)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Moment &x = *p.x[0], &f = *p.x[1];
    const double a = skip_scale, b = branch_scale;
    Moment y{.K = Kernel::from(x.K.tokens(), [&](Index t, Index s) { return a * a * x.K(t, s) + b * b * f.K(t, s); })};  // (4)
    for (Index t = 0; t < x.K.tokens(); ++t) {
      y.mean.push_back(a * x.mean_at(t) + b * f.mean_at(t));
      y.own.push_back(a * x.own_at(t) + b * f.own_at(t));
    }
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double a = skip_scale, b = branch_scale;
    return {{UpWire(p.dy.G.scaled(a * a)), UpWire(p.dy.G.scaled(b * b))}, {}};  // (5)
  }
};
static_assert(Op<Residual>);

}  // namespace stepzero
