#pragma once
// What       Some neighbouring channels of a wire.
// Shapes     x (T, n); y (T, m): channels from `first` on.
// Forward    y_tc = x_t,(first + c)                                         (1)
// Backward   dx_t,(first + c) = dy_tc, 0 elsewhere                          (2)
// Push       K                                                              (3)
// Pull       G                                                              (4)
// Assumes    channels of x alike
// Derived in docs/derivations/take.md
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Take {
  static constexpr const char* kind = "take";
  static constexpr Grade grade = Grade::exact;
  Index from = 1;  // n
  Index first = 0;
  Index width = 1;  // m

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index t = 0; t < p.y.rows; ++t) std::copy_n(p.x[0].row(t) + first, width, p.y.row(t));  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    clear(p.dx[0]);
    for (Index t = 0; t < p.dy.rows; ++t) {
      for (Index c = 0; c < width; ++c) p.dx[0].d(t, first + c) += p.dy(t, c);  // (2)
    }
  }

  [[nodiscard]] Moment push(const PushDoor& p) const { return *p.x[0]; }                 // (3)
  [[nodiscard]] Pulled pull(const PullDoor& p) const { return {{UpWire(p.dy.G)}, {}}; }  // (4)
};
static_assert(Op<Take>);

}  // namespace stepzero
