#pragma once
// What       y = c x: embedding scales, logit scales; y = cap tanh(x / cap): the softcap on scores and logits.
// Shapes     x, y (T, n).
// Forward    scale: y = c x                                                 (1)
//            softcap: y = cap tanh(x / cap)                                 (2)
// Backward   scale: dx = c dy                                               (3)
//            softcap: dx = (1 - (y / cap)^2) dy                             (4)
// Derived in docs/derivations/scale.md
#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero {

struct Scale {
  static constexpr const char* kind = "scale";
  Index width = 0;
  double factor = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    pass_through(p.x[0], Into<S>{p.y}, S(factor));  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0], S(factor));  // (3)
  }
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
  Index width = 0;
  double cap = 30;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
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
          store(p.dx[0], t, c, (S(1) - h) * (S(1) + h) * p.dy(t, c));  // (4)
        }
      }
    });
  }
};
static_assert(Op<Softcap>);

}  // namespace stepzero
