#pragma once
// What       y = f(x), number by number.
// Shapes     x, y (T, n).
// Forward    y = f(x)                                                       (1)
// Backward   dx = f'(x) o dy                                                (2)
// Push       L_ts = E f(u) f(v),  (u, v) normal with variances K_tt, K_ss and covariance K_ts               (3)
// Pull       H_ts = G_ts E f'(u) f'(v)                                      (4)
// Assumes    x Gaussian, dy independent of x
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

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y = push_kernel(p);
    y.before_function = {p.x[0]->K, [](double x) { return Phi::value(x); }, [](double x) { return Phi::slope(x); }};
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    if (p.dy.before_function) return {{{.G = *p.dy.before_function}}, {}};
    Pulled up = pull_kernel(p);
    up.dx[0].behind_function = {p.dy.G, [](double x) { return Phi::slope(x); }};
    return up;
  }

 private:
  [[nodiscard]] static Moment push_kernel(const PushDoor& p) {
    const auto f = [](double x) { return Phi::value(x); };
    if constexpr (std::is_same_v<Phi, Relu>)
      return push_closed(p, f, relu_kernel, relu_mean);  // (3)
    else if constexpr (std::is_same_v<Phi, ReluSquared>)
      return push_closed(p, f, relu_squared_kernel, relu_squared_mean);
    else if constexpr (std::is_same_v<Phi, LeakyRelu>)
      return push_closed(p, f, leaky_relu_kernel, leaky_relu_mean);
    else if constexpr (std::is_same_v<Phi, Relu6>)
      return push_near(p, f, [](double x) { return Relu::value(x); }, relu_kernel);
    else
      return push_function(p, f);
  }

  [[nodiscard]] static Pulled pull_kernel(const PullDoor& p) {
    const auto slope = [](double x) { return Phi::slope(x); };
    Pulled up = through(p, slope);
    feel_size(p, [](double x) { return Phi::value(x); }, slope, up.dx[0]);
    return up;
  }

  template <class Slope>
  [[nodiscard]] static Pulled through(const PullDoor& p, const Slope& slope) {
    if constexpr (std::is_same_v<Phi, Relu>)
      return pull_closed(p, step_kernel);  // (4)
    else if constexpr (std::is_same_v<Phi, ReluSquared>)
      return pull_closed(p, [](double a, double b, double c) { return 4 * relu_kernel(a, b, c); });
    else if constexpr (std::is_same_v<Phi, LeakyRelu>)
      return pull_closed(p, leaky_step_kernel);
    else if constexpr (std::is_same_v<Phi, Relu6>)
      return pull_near(p, slope, [](double x) { return Relu::slope(x); }, step_kernel);
    else
      return pull_function(p, slope);
  }
};
static_assert(Op<Elementwise<GeluTanh>>);

}  // namespace stepzero
