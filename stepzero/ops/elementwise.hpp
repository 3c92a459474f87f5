#pragma once
// What       y = f(x), number by number.
// Shapes     x, y (T, n).
// Forward    y = f(x)                                                       (1)
// Backward   dx = f'(x) o dy                                                (2)
// Derived in docs/derivations/elementwise.md; the functions are in kernels/phi-inl.hpp.
#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

template <class Phi>
struct Elementwise {
  using phi = Phi;
  static constexpr const char* kind = Phi::name;
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
};
static_assert(Op<Elementwise<GeluTanh>>);

}  // namespace stepzero
