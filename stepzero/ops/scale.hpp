#pragma once
// What       y = c x: embedding scales, logit scales; y = cap tanh(x / cap): the softcap on scores and logits;
//            y = x, but at most c away from 0: the clipping of queries, keys and values (OLMo).
// Shapes     x, y (T, n).
// Forward    scale: y = c x                                                 (1)
//            softcap: y = cap tanh(x / cap)                                 (2)
//            clip: y = min(max(x, -c), c)                                   (3)
// Backward   scale: dx = c dy                                               (4)
//            softcap: dx = (1 - (y / cap)^2) dy                             (5)
//            clip: dx = [|x| <= c] dy                                       (6)
// Push       scale: c^2 K;  softcap, clip: as an elementwise function       (7)
// Pull       scale: c^2 G;  softcap, clip: as an elementwise function       (8)
// Assumes    softcap, clip: x Gaussian, dy independent of x
// Derived in docs/derivations/scale.md
#include <algorithm>
#include <cmath>

#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero {

struct Scale {
  static constexpr const char* kind = "scale";
  static constexpr Grade grade = Grade::exact;
  static constexpr bool row_wise = true;
  Index width = 0;
  double factor = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.as_input = true, .wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    pass_through(p.x[0], Into<S>{p.y}, S(factor));  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0], S(factor));  // (4)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y = *p.x[0];
    y.K = y.K.scaled(factor * factor);  // (7)
    for (double& m : y.mean) m *= factor;
    for (double& a : y.own) a *= factor;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const { return {{Adjoint{p.dy.G.scaled(factor * factor), p.dy.tied}}, {}}; }  // (8)
};
static_assert(Op<Scale>);

// One row of (2), in place; also used on attention scores.
template <class S>
void softcap_row(S* x, Index n, double cap) {
  for (Index i = 0; i < n; ++i) x[i] = x[i] / S(cap);
  apply_row<Tanh>(x, x, n);
  for (Index i = 0; i < n; ++i) x[i] = x[i] * S(cap);
}

struct Softcap {
  static constexpr const char* kind = "softcap";
  static constexpr Grade grade = Grade::large_width;
  static constexpr bool row_wise = true;
  Index width = 0;
  double cap = 30;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.wants_law = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        std::copy_n(p.x[0].row(t), width, p.y.row(t));
        softcap_row(p.y.row(t), width, cap);  // (2)
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    parallel_ranges(p.dy.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; ++c) {
          const S h = p.y(t, c) / S(cap);
          store(p.dx[0], t, c, (S(1) - h) * (S(1) + h) * p.dy(t, c));  // (5)
        }
      }
    });
  }

  struct Value {
    double number;  // c
    double operator()(double x) const { return number * std::tanh(x / number); }
  };
  struct Slope {
    double number;
    double operator()(double x) const { return Tanh::slope(x / number); }
  };
  [[nodiscard]] Value value() const { return {cap}; }
  [[nodiscard]] Slope slope() const { return {cap}; }

  [[nodiscard]] Moment push(const PushDoor& p) const { return push_blurred(p, {}); }
  [[nodiscard]] Pulled pull(const PullDoor& p) const { return pull_blurred(p, {}); }

  [[nodiscard]] Moment push_blurred(const PushDoor& p, const Blur& blur) const {
    Moment y = push_function(p, value(), blur);  // (7)
    y.own = p.x[0]->own;
    for (double& a : y.own) a = value()(a);
    return y;
  }
  [[nodiscard]] Pulled pull_blurred(const PullDoor& p, const Blur& blur) const { return pull_function(p, slope(), blur); }  // (8)
};
static_assert(Op<Softcap>);

struct Clip {
  static constexpr const char* kind = "clip";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;
  double most = 8;  // c

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; ++c) {
          const S x = p.x[0](t, c);
          p.y(t, c) = x > S(most) ? S(most) : x < S(-most) ? S(-most) : x;  // (3)
        }
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    parallel_ranges(p.dy.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; ++c) {
          const S x = p.x[0](t, c);
          store(p.dx[0], t, c, x > S(most) || x < S(-most) ? S(0) : p.dy(t, c));  // (6)
        }
      }
    });
  }

  struct Value {
    double number;  // c
    double operator()(double x) const { return std::clamp(x, -number, number); }
  };
  struct Slope {
    double number;
    double operator()(double x) const { return std::abs(x) <= number ? 1.0 : 0.0; }
  };
  [[nodiscard]] Value value() const { return {most}; }
  [[nodiscard]] Slope slope() const { return {most}; }

  [[nodiscard]] Moment push(const PushDoor& p) const { return push_blurred(p, {}); }
  [[nodiscard]] Pulled pull(const PullDoor& p) const { return pull_blurred(p, {}); }

  [[nodiscard]] Moment push_blurred(const PushDoor& p, const Blur& blur) const { return push_function(p, value(), blur); }  // (7)
  [[nodiscard]] Pulled pull_blurred(const PullDoor& p, const Blur& blur) const { return pull_function(p, slope(), blur); }  // (8)
};
static_assert(Op<Clip>);

}  // namespace stepzero
