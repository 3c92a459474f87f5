#pragma once
// Finite width of products with a random matrix. Every output channel sees all input channels: the deviation of the input's mean square
// in one draw is common to all output channels.
#include "stepzero/ops/conv.hpp"
#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/lora.hpp"

namespace stepzero {

// Noise grows by the sampling of `out` channels. Sizes vary as those of the input did; the output's own channels are Gaussian.
inline Fluctuation through_matrix(const DownWire& x, Index out) {
  Fluctuation f;
  f.noise = x.f.noise + 1 / static_cast<double>(out);
  f.take_jitter(x.f);
  f.thins = x.f.thins;
  f.swing = x.f.swing;
  f.drift = x.level();
  f.lone = x.f.lone;
  f.token_drift = x.f.token_drift + x.own_sampling();
  return f;
}

// dW: smaller, since the gradient is small where x is large (damp; to first order, and never below 0), and larger by the covariance of K
// and G that attention has found (weight_gain).
inline double weight_factor(const PullDoor& p) {
  const DownWire& x = *p.x[0];
  const double less = p.dy.r.damp * (x.f.token_drift + x.own_sampling());
  return p.dy.r.weight_gain * (less < 0.5 ? 1 - less : 0.25 / less);
}

// dx: its part along x is known, <dx, x> = <dy, y>.
inline Pulled back_through_matrix(const PullDoor& p, Pulled up, Index in, std::size_t matrices) {
  const Response& r = p.dy.r;
  const double n = static_cast<double>(in);
  up.dx[0].G = up.dx[0].G.scaled(1 + (r.along - 1) / n);
  up.dx[0].r = {.along = r.along, .twin = r.twin, .damp = r.damp, .stretch = r.stretch};
  up.spread = {{.level = 2 * p.dy.G.sameness() / n, .noise = 1 / n}};
  for (std::size_t i = 0; i < matrices; ++i) up.dtheta[i] *= weight_factor(p);
  return up;
}

inline DownWire push_finite(const Linear& op, const PushDoor& p) { return {op.push(p), through_matrix(*p.x[0], op.out)}; }
inline Pulled pull_finite(const Linear& op, const PullDoor& p) {
  return back_through_matrix(p, op.pull(p), op.in, static_cast<std::size_t>(op.pieces));
}

// The low rank is a place of r channels: what goes through it, a share s of the square, has their noise, and all output channels see one
// draw of their size.
inline DownWire push_finite(const LoraLinear& op, const PushDoor& p) {
  DownWire y{op.push(p), through_matrix(*p.x[0], op.base.out)};
  const double share = op.low_share(p.theta), narrow = share * share / static_cast<double>(op.rank);
  y.f.noise += narrow;
  y.f.drift += 2 * narrow * p.x[0]->K.sameness();
  y.f.token_drift += 2 * narrow;
  return y;
}
inline Pulled pull_finite(const LoraLinear& op, const PullDoor& p) {
  Pulled up = back_through_matrix(p, op.pull(p), op.base.in, static_cast<std::size_t>(op.base.pieces));
  for (std::size_t i = op.first(); i < up.dtheta.size(); ++i) up.dtheta[i] *= weight_factor(p);
  const double share = op.low_share(p.theta), narrow = share * share / static_cast<double>(op.rank);
  up.spread[0].level += 2 * narrow * p.dy.G.sameness();
  up.spread[0].noise += narrow;
  return up;
}

// A place sees several pixels, so the mean square of all of them counts. Rows of the output are not those of the input: no response of
// single rows is carried up.
inline DownWire push_finite(const Conv& op, const PushDoor& p) {
  DownWire y{op.push(p), through_matrix(*p.x[0], op.out)};
  y.f.drift = p.x[0]->level();
  return y;
}
inline Pulled pull_finite(const Conv& op, const PullDoor& p) {
  Pulled up = op.pull(p);
  const double n = static_cast<double>(op.in);
  up.spread = {{.level = 2 * p.dy.G.sameness() / n, .noise = 1 / n}};
  up.dtheta[0] *= p.dy.r.weight_gain;
  return up;
}

}  // namespace stepzero
