#pragma once
// What       Queries grow with the place in the sequence, so that attention stays sharp over many tokens.
// Shapes     x, y (T, n); p_t is the place of token t, from 0.
// Forward    y_t = c_t x_t,  c_t = 1 + a ln(1 + floor((p_t + 1) / every))   (1)
// Backward   dx_t = c_t dy_t                                                (2)
// Push       L_ts = c_t c_s K_ts                                            (3)
// Pull       H_ts = c_t c_s G_ts                                            (4)
// Assumes    nothing
// Derived in docs/derivations/temperature.md
#include <cmath>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Temperature {
  static constexpr const char* kind = "temperature";
  static constexpr Grade grade = Grade::exact;
  Index width = 1;
  double by = 0;     // a
  double every = 1;  // tokens

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    times(p.batch, p.x[0], Into<S>{p.y});  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (p.dx[0].wanted()) times(p.batch, p.dy, p.dx[0]);  // (2)
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    DownWire y = *p.x[0];
    y.note.reset();
    y.K = Kernel::from(y.K.tokens(), [&](Index t, Index s) { return factor(p.batch, t) * factor(p.batch, s) * p.x[0]->K(t, s); });  // (3)
    for (std::size_t t = 0; t < y.mean.size(); ++t) y.mean[t] *= factor(p.batch, static_cast<Index>(t));
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    return {{UpWire(Kernel::from(p.dy.G.tokens(),
                                 [&](Index t, Index s) {
                                   return factor(p.batch, t) * factor(p.batch, s) * p.dy.G(t, s);  // (4)
                                 }))},
            {}};
  }

 private:
  [[nodiscard]] double factor(const Batch& batch, Index t) const {
    return 1 + by * std::log1p(std::floor(static_cast<double>(batch.position(t) + 1) / every));
  }
  template <class S>
  void times(const Batch& batch, View<const S> x, const Into<S>& y) const {
    for (Index t = 0; t < x.rows; ++t) {
      const S c = S(factor(batch, t));
      for (Index i = 0; i < width; ++i) store(y, t, i, c * x(t, i));
    }
  }
};
static_assert(Op<Temperature>);

}  // namespace stepzero
