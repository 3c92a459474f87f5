#include "stepzero/ops/move/norm.hpp"

#include <cmath>
#include <numbers>

#include "stepzero/ops/move/vectors.hpp"

namespace stepzero {

Mover move_norm(const Kernel& centred, double eps, double gain, bool gains, bool biases, const MoveDoor& p) {
  struct State {
    Square K, G, normed;
    std::vector<double> r;
    Direct g, b;
    Update of_g, of_b;
    double n, eps, gain;
  };
  auto s = std::make_shared<State>();
  s->K = Square::of(centred);
  s->G = Square::of(p.G);
  s->n = static_cast<double>(p.y.width);
  s->eps = eps;
  s->gain = gain;
  const Index tokens = s->K.tokens();
  for (Index t = 0; t < tokens; ++t) s->r.push_back(std::sqrt(std::max(s->K(t, t), 0.0) + eps));
  s->normed = Square::from(tokens, [&](Index t, Index u) { return s->r[t] * s->r[u] > 0 ? s->K(t, u) / (s->r[t] * s->r[u]) : 0; });
  if (gains) s->of_g = p.updates[0];
  if (biases) s->of_b = p.updates[gains ? 1 : 0];
  s->g = direct_gain(s->of_g, s->normed, s->G, s->n);
  s->b = direct_bias(s->of_b, s->G, s->n);
  Mover out;
  const auto tell = [&](const Direct& d, const Update& u, double squares) {
    const double below =
        u.rule == Update::Rule::sign && u.eps > 0 && squares > 0 ? std::erf(u.eps / (std::sqrt(squares / s->n) * std::numbers::sqrt2)) : -1;
    out.params.push_back({d.norm2, d.decrease, d.size(s->G, s->n).trace() / static_cast<double>(tokens), below});
  };
  double pull = 0;
  for (Index t = 0; t < tokens; ++t) {
    for (Index u = 0; u < tokens; ++u) pull += s->G(t, u);
  }
  if (gains) tell(s->g, s->of_g, inner(s->normed, s->G));
  if (biases) tell(s->b, s->of_b, pull);
  out.run = [s](std::span<const WireChange* const> dx, const Factor& factor) {
    const WireChange& c = *dx[0];
    const Index count = s->K.tokens();
    const double n = s->n, g = s->gain, rate_g = factor.of(s->of_g), rate_b = factor.of(s->of_b);
    const double kept = 1 - rate_g * s->of_g.decay;
    const Square Y = c.stretch * s->K;
    std::vector<double> after, shift;
    for (Index t = 0; t < count; ++t) {
      const double square = s->K(t, t) + 2 * Y(t, t) + c.size(t, t);
      after.push_back(std::sqrt(std::max(square, 0.0) + s->eps));  // (1)
      shift.push_back(1 / after[t] - 1 / s->r[t]);
    }
    const auto each = [&](const auto& f) { return Square::from(count, f); };
    const Square T = each([&](Index t, Index u) { return g * g * c.response(t, u) / (after[t] * s->r[u]); });
    WireChange y;
    y.stretch = each([&](Index t, Index u) { return (t == u ? shift[t] * s->r[t] : 0) + c.stretch(t, u) * s->r[u] / after[t]; });  // (4)
    const Square whole = Square::one(count) + y.stretch;  // the gains multiply what has changed by now
    const Square A = rate_g * (whole * s->g.A) + rate_b * s->b.A;
    y.response = T + A;  // (2)
    Square carried = each([&](Index t, Index u) {
      return g * g *
             (shift[t] * shift[u] * s->K(t, u) + shift[u] / after[t] * Y(t, u) + shift[t] / after[u] * Y(u, t) +
              c.size(t, u) / (after[t] * after[u]));
    });
    const Square apart = g != 0 ? carried - (g * g) * between(y.stretch, s->normed) : Square(count);
    Square own(count), cross(count);  // (3): (A G A' + A G T' + T G A') / n + R
    const double size = carried.trace(), of_gains = rate_g * rate_g * s->g.R.trace();
    if (rate_g != 0 || rate_b != 0) {
      const Square AG = A * s->G;
      gemm<double>(Trans::no, Trans::yes, 1 / n, AG.view(), T.view(), 0.0, cross.view());
      gemm<double>(Trans::no, Trans::yes, 1 / n, AG.view(), A.view(), 0.0, own.view());
      // gains' own noise, of gains that have changed: where it is a thousandth of the change, what multiplies it does not matter
      own += (rate_g * rate_g) * (of_gains > 1e-3 * size ? between(whole, s->g.R) : s->g.R) + (rate_b * rate_b) * s->b.R;
      if (g != 0) own += (rate_g * rate_g * s->g.norm2 / (n * g * g)) * apart;
    }
    y.size = carried + own + 2.0 * cross.symmetric();
    y.apart = apart + own + 2.0 * cross.symmetric();
    y.direct = own.trace() / static_cast<double>(count);
    y.carried = size / static_cast<double>(count);
    if (kept != 1) {
      y.response = kept * y.response;
      const Square stretch = kept * (Square::one(count) + y.stretch) - Square::one(count);
      y.size = (kept * kept) * y.size + g * g * (between(stretch, s->normed) - (kept * kept) * between(y.stretch, s->normed));
      y.stretch = stretch;
      y.apart = {};
    }
    return y;
  };
  return out;
}

}  // namespace stepzero
