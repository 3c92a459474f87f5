#pragma once
// What       y = f(x), number by number.
// Shapes     x, y (T, n).
// Forward    y = f(x)                                                       (1)
// Backward   dx = f'(x) o dy                                                (2)
// Push       L_ts = E f(u) f(v),  (u, v) normal with variances K_tt, K_ss and covariance K_ts               (3)
// Pull       H_ts = G_ts E f'(u) f'(v)                                      (4)
// Assumes    x Gaussian, dy independent of x. What single draws differ by: finite/function.hpp
// Derived in docs/derivations/elementwise.md; the functions are in kernels/phi-inl.hpp.
#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

template <class Phi>
struct Elementwise {
  using phi = Phi;
  static constexpr const char* kind = Phi::name;
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = true, .of_its_own = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) apply_row<Phi>(p.x[0].row(t), p.y.row(t), width);  // (1)
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    parallel_ranges(p.dy.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        apply_slope_row<Phi>(p.x[0].row(t), p.dy.row(t), p.dx[0].d.row(t), width, p.dx[0].add);  // (2)
      }
    });
  }

  [[nodiscard]] Moment push(const PushDoor& p) const { return push_blurred(p, {}); }
  [[nodiscard]] Pulled pull(const PullDoor& p) const { return pull_blurred(p, {}); }

  // The mean over cosines that are off by `blur` (finite/function.hpp).
  [[nodiscard]] Moment push_blurred(const PushDoor& p, const Blur& blur) const { return push_function(p, value(), blur); }  // (3)
  [[nodiscard]] Pulled pull_blurred(const PullDoor& p, const Blur& blur) const {
    if (const auto* maximum = note_of<BeforeMaximum>(p.dy)) return {{UpWire(maximum->G)}, {}};
    Pulled up = pull_function(p, slope(), blur);  // (4)
    up.dx[0].note = BehindFunction{p.dy.G, Phi::slope};
    return up;
  }

  [[nodiscard]] std::any note(const PushDoor& p) const { return BeforeFunction{p.x[0]->K, Phi::value, Phi::slope}; }
  [[nodiscard]] ValueOf<Phi> value() const { return {}; }
  [[nodiscard]] SlopeOf<Phi> slope() const { return {}; }
};
static_assert(Op<Elementwise<GeluTanh>>);

}  // namespace stepzero
