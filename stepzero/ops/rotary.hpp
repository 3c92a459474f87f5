#pragma once
// What       Each pair of channels of a head turns by an angle that grows with the position.
// Shapes     x, y (T, heads * head_dim); the first `turned` channels of each head turn, the rest pass.
// Forward    (y_a, y_b) = R(pos w_i) (x_a, x_b),  R(p) = [cos p, -sin p; sin p, cos p]         (1)
//            w_i = base^(-2i / turned); pair i is channels (i, i + turned/2), or (2i, 2i + 1) interleaved (GPT-J)
// Backward   (dx_a, dx_b) = R(-pos w_i) (dy_a, dy_b): the transpose is the turn back            (2)
// Derived in docs/derivations/rotary.md
#include <cmath>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Rotary {
  static constexpr const char* kind = "rotary";
  Index heads = 1;
  Index head_dim = 2;
  Index turned = 2;  // even, at most head_dim
  double base = 10000;
  bool interleaved = false;
  std::vector<double> frequencies = {};  // turned/2 of them where a scaling rule changes them; empty: the rule above

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return heads * head_dim; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  [[nodiscard]] double frequency(Index i) const {
    if (!frequencies.empty()) return frequencies[static_cast<std::size_t>(i)];
    return std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(turned));
  }

  template <class S>
  void forward(const Down<S>& p) const {
    turn(p.batch, p.x[0], Into<S>{p.y}, 1);  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (p.dx[0].wanted()) turn(p.batch, p.dy, p.dx[0], -1);  // (2)
  }

 private:
  template <class S>
  void turn(const Batch& batch, View<const S> x, const Into<S>& y, double direction) const {
    const Index half = turned / 2;
    Tensor<double> table(batch.length, 2 * half);  // cos, sin for each position
    for (Index pos = 0; pos < batch.length; ++pos) {
      for (Index i = 0; i < half; ++i) {
        const double angle = static_cast<double>(pos) * frequency(i);
        table(pos, 2 * i) = std::cos(angle);
        table(pos, 2 * i + 1) = direction * std::sin(angle);
      }
    }
    parallel_ranges(x.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) turn_token(x, y, t, table.view().row(batch.position(t)));
    });
  }

  template <class S>
  void turn_token(View<const S> x, const Into<S>& y, Index t, const double* table) const {
    const Index half = turned / 2;
    for (Index h = 0; h < heads; ++h) {
      const Index start = h * head_dim;
      for (Index i = 0; i < half; ++i) {
        const Index a = start + (interleaved ? 2 * i : i);
        const Index b = start + (interleaved ? 2 * i + 1 : i + half);
        const S cos = S(table[2 * i]);
        const S sin = S(table[2 * i + 1]);
        store(y, t, a, cos * x(t, a) - sin * x(t, b));
        store(y, t, b, sin * x(t, a) + cos * x(t, b));
      }
      for (Index c = start + turned; c < start + head_dim; ++c) store(y, t, c, x(t, c));
    }
  }
};
static_assert(Op<Rotary>);

}  // namespace stepzero
