#pragma once
// What       y = a o b: the gate of a gated feed-forward (a = f(gate), b = up).
// Shapes     a, b, y (T, n).
// Forward    y = a o b                                                      (1)
// Backward   da = b o dy                                                    (2)
//            db = a o dy                                                    (3)
// Derived in docs/derivations/multiply.md
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Multiply {
  static constexpr const char* kind = "multiply";
  Index width = 0;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    product(p.x[0], p.x[1], Into<S>{p.y});  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    product(p.x[1], p.dy, p.dx[0]);  // (2)
    product(p.x[0], p.dy, p.dx[1]);  // (3)
  }

 private:
  template <class S>
  static void product(View<const S> a, View<const S> b, const Into<S>& into) {
    if (!into.wanted()) return;
    parallel_ranges(a.rows, row_grain(a.cols), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        const S* from_a = a.row(t);
        const S* from_b = b.row(t);
        S* to = into.d.row(t);
        if (into.add) {
          for (Index c = 0; c < a.cols; ++c) to[c] += from_a[c] * from_b[c];
        } else {
          for (Index c = 0; c < a.cols; ++c) to[c] = from_a[c] * from_b[c];
        }
      }
    });
  }
};
static_assert(Op<Multiply>);

}  // namespace stepzero
