#pragma once
// What       Every token gets what the one before it was; the first of a sequence gets nothing.
// Shapes     x, y (T, n).
// Forward    y_t = x_(t-1), y_t = 0 for the first                           (1)
// Backward   dx_t = dy_(t+1), 0 for the last                                (2)
// Push       L_ts = K_(t-1)(s-1), 0 for the first                           (3)
// Pull       H_ts = G_(t+1)(s+1), 0 for the last                            (4)
// Assumes    nothing
// Derived in docs/derivations/shift.md
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Shift {
  static constexpr const char* kind = "shift";
  static constexpr Grade grade = Grade::exact;
  Index width = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    const Index length = p.y.rows / p.batch.sequences;
    for (Index t = 0; t < p.y.rows; ++t) {
      for (Index c = 0; c < width; ++c) p.y(t, c) = t % length == 0 ? S(0) : p.x[0](t - 1, c);  // (1)
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const Index length = p.dy.rows / p.batch.sequences;
    for (Index t = 0; p.dx[0].wanted() && t < p.dy.rows; ++t) {
      for (Index c = 0; c < width; ++c) store(p.dx[0], t, c, (t + 1) % length == 0 ? S(0) : p.dy(t + 1, c));  // (2)
    }
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    const DownWire& x = *p.x[0];
    const Index length = x.K.tokens() / p.batch.sequences;
    DownWire y = x;
    y.note.reset();
    y.own.clear();
    y.K =
        Kernel::from(x.K.tokens(), [&](Index t, Index s) { return t % length == 0 || s % length == 0 ? 0.0 : x.K(t - 1, s - 1); });  // (3)
    for (Index t = std::ssize(y.mean); t-- > 0;) y.mean[static_cast<std::size_t>(t)] = t % length == 0 ? 0 : x.mean_at(t - 1);
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Index length = p.dy.G.tokens() / p.batch.sequences;
    const auto last = [&](Index t) { return (t + 1) % length == 0; };
    return {{UpWire(Kernel::from(p.dy.G.tokens(), [&](Index t, Index s) { return last(t) || last(s) ? 0.0 : p.dy.G(t + 1, s + 1); }))},
            {}};  // (4)
  }
};
static_assert(Op<Shift>);

}  // namespace stepzero
