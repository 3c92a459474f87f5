#pragma once
// What       A square on one side and an exponential on the other, how much of each is learned: the function of Apertus (xIELU).
// Shapes     x, y (T, n); four numbers p, q, b, e, the last two not trained. a = softplus(p), c = b + softplus(q).
// Forward    y = a x^2 + b x for x > 0,  c (exp(min(x, e)) - 1 - x) + b x elsewhere                         (1)
// Backward   dx = (2 a x + b) dy for x > 0,  (c (exp(x) [x < e] - 1) + b) dy elsewhere                      (2)
//            dp = softplus'(p) sum x^2 dy over x > 0,  dq = softplus'(q) sum (exp(min(x, e)) - 1 - x) dy elsewhere  (3)
// Push       L_ts = E f(u) f(v),  (u, v) normal with the kernel of x        (4)
// Pull       H_ts = G_ts E f'(u) f'(v);  E dp^2 = softplus'(p)^2 sum_ts G_ts E g(u) g(v),  g = df/da, and so for q  (5)
// Assumes    x Gaussian, dy independent of x
// Derived in docs/derivations/xielu.md
#include <cmath>

#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct XIelu {
  static constexpr const char* kind = "xielu";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {4, {1, 1, 1, 1}}; }

  template <class S>
  struct Shape {
    S a, c, b, e;

    // f, and its derivatives by x, a and c
    [[nodiscard]] S value(S x) const { return x > S(0) ? a * x * x + b * x : c * left(x) + b * x; }                      // (1)
    [[nodiscard]] S slope(S x) const { return x > S(0) ? S(2) * a * x + b : c * ((x < e ? exp(x) : S(0)) - S(1)) + b; }  // (2)
    [[nodiscard]] S by_a(S x) const { return x > S(0) ? x * x : S(0); }
    [[nodiscard]] S by_c(S x) const { return x > S(0) ? S(0) : left(x); }

   private:
    [[nodiscard]] S left(S x) const {
      const S least = x < e ? x : e;
      if constexpr (std::is_same_v<S, Dual>)
        return exp(least) - S(1) - x;
      else
        return std::expm1(least) - x;
    }
  };

  template <class S>
  void forward(const Down<S>& p) const {
    const Shape<S> f = shape<S>([&](Index i) { return p.theta[i](0, 0); });
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index i = 0; i < width; ++i) p.y(t, i) = f.value(p.x[0](t, i));
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const Shape<S> f = shape<S>([&](Index i) { return p.theta[i](0, 0); });
    S da = S(0), dc = S(0), db = S(0), de = S(0);
    for (Index t = 0; t < p.dy.rows; ++t) {
      for (Index i = 0; i < width; ++i) {
        const S x = p.x[0](t, i), d = p.dy(t, i);
        if (p.dx[0].wanted()) store(p.dx[0], t, i, f.slope(x) * d);
        da += f.by_a(x) * d;
        dc += f.by_c(x) * d;
        db += x * d;
        if (!(x > S(0)) && !(x < f.e)) de += f.c * exp(f.e) * d;
      }
    }
    const S gradients[] = {sigmoid(p.theta[0](0, 0)) * da, sigmoid(p.theta[1](0, 0)) * dc, db + dc, de};  // (3)
    for (Index i = 0; i < 4; ++i) {
      if (p.dtheta[i].wanted()) store(p.dtheta[i], 0, 0, gradients[i]);
    }
  }

  [[nodiscard]] Moment push(const PushDoor& p) const { return push_function(p, Part{of(p.theta), &Shape<double>::value, 0}, {}); }  // (4)

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Shape<double> f = of(p.theta);
    Pulled up = pull_function(p, Part{f, &Shape<double>::slope, 1}, {});
    const auto squares = [&](const Part& by) { return frobenius(function_moments(by, p.x[0]->K, Blur{}, p.draws).K, p.dy.G); };
    const double sp = sigmoid(p.theta[0].mean), sq = sigmoid(p.theta[1].mean);
    up.dtheta = {sp * sp * squares({f, &Shape<double>::by_a, 2}), sq * sq * squares({f, &Shape<double>::by_c, 3}), 0, 0};  // (5)
    return up;
  }

 private:
  // One of the functions, for the kernels of functions. What they cache is found by the number.
  struct Part {
    Shape<double> f;
    double (Shape<double>::*which)(double) const;
    double part;
    double number = 1e6 * part + f.a + 31.41592653 * f.c + 2718.281828 * f.b;
    double operator()(double x) const { return (f.*which)(x); }
  };

  template <class S>
  static S sigmoid(S x) {
    return S(1) / (S(1) + exp(S(0) - x));
  }
  template <class S>
  static S softplus(S x) {
    using std::log;
    return log(S(1) + exp(x));
  }
  template <class S, class At>
  static Shape<S> shape(const At& at) {
    return {softplus(S(at(0))), S(at(2)) + softplus(S(at(1))), at(2), at(3)};
  }
  static Shape<double> of(std::span<const Law> theta) {
    return shape<double>([&](Index i) { return theta[static_cast<std::size_t>(i)].mean; });
  }
};
static_assert(Op<XIelu>);

}  // namespace stepzero
