#pragma once
// Finite width of norms. In one draw each token is divided by its own size, where the limit divides by the mean size.
//
// Push       L_ts = limit (1 - (1 - rho^2) shrink/2) lift,  rho = k_ts / sqrt(k_tt k_ss)
//            since E k_ts (k_tt k_ss)^(-1/2) over draws of k is smaller than at the mean of k, as sizes vary together with products
//            (shrink), and larger where tokens' sizes vary independently of them (lift)
// Pull       H_ts = limit (1 - along (c_t + c_s - c_t c_s rho^2)/d - [LayerNorm] flat/d) jensen,  c_t = k_tt / (k_tt + eps)
//            the gradient's parts along the token and along ones are gone; jensen = E (u_t u_s)^(-1/2) for sizes u of one draw
// LayerNorm  takes flat/d of the kernel: what a token has along (1, ..., 1)
// Derived in docs/derivations/norm.md
#include <algorithm>
#include <cmath>

#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/norm.hpp"

namespace stepzero {

namespace finite {

// The input without its part along (1, ..., 1).
template <bool centred>
DownWire less_flat(const Norm<centred>& op, const DownWire& x) {
  DownWire out = x;
  if (!centred || x.f.flat == 0) return out;
  const double rest = 1 - x.f.flat / static_cast<double>(op.width);
  out.K = x.K.scaled(rest);
  for (double& m : out.mean) m *= std::sqrt(rest);
  return out;
}

}  // namespace finite

template <bool centred>
DownWire push_finite(const Norm<centred>& op, const PushDoor& p) {
  const DownWire x = finite::less_flat(op, *p.x[0]);
  const DownWire* const wire = &x;
  DownWire y{op.push({p.batch, {&wire, 1}, p.theta, p.draws})};
  const double shrink = x.f.shrink(op.width), lift = x.f.lift(), shift = op.bias_law(p.theta).second_moment();
  if (shrink != 0 || lift != 1) {
    const Kernel k = op.centred_kernel(x), limit = y.K;
    const std::vector<double> size = op.inverse_sizes(k, 0);
    y.K = Kernel::from_rows(k.tokens(), [&, size = size.data()](Index t, double* __restrict row) {
      const Kernel::Row k_t = k.row(t), limit_t = limit.row(t);
      const auto entry = [=](Index s, const auto& lifted) {
        const double rho = k_t[s] * size[t] * size[s];
        return (limit_t[s] - shift) * (1 - std::max(1 - rho * rho, 0.0) / 2 * shrink) * lifted(rho) + shift;
      };
      if (lift == 1) {
        for (Index s = 0; s < t; ++s) row[s] = entry(s, [](double) { return 1.0; });
      } else {
        for (Index s = 0; s < t; ++s) row[s] = entry(s, [=](double rho) { return std::min(lift, 1 / std::max(std::abs(rho), 1e-9)); });
      }
      row[t] = limit_t[t];
    });
  }
  y.f.noise = x.f.noise;
  y.f.jitter = x.f.jitter;  // none of it is fresh: a branch begins
  // the size that all tokens share is divided out, and the contrast varies by it
  const double same = p.x[0]->K.sameness();
  y.f.swing = x.f.swing + same * (x.f.drift + x.f.sampling * same / static_cast<double>(op.width));
  y.f.along = 0;
  y.f.sampling = 0;
  y.f.flat = centred ? 0 : x.f.flat;
  return y;
}

template <bool centred>
Pulled pull_finite(const Norm<centred>& op, const PullDoor& p) {
  const DownWire x = finite::less_flat(op, *p.x[0]);
  const DownWire* const wire = &x;
  const Response& r = p.dy.r;
  Pulled up = op.pull({p.batch, {&wire, 1}, p.theta, p.y, p.dy, p.draws});
  const Kernel k = op.centred_kernel(x), limit = up.dx[0].G;
  const std::vector<double> inverse = op.inverse_sizes(k, op.eps);
  std::vector<double> own;  // c_t
  for (Index t = 0; t < k.tokens(); ++t) own.push_back(k(t, t) * inverse[t] * inverse[t]);
  const double d = static_cast<double>(op.width);
  up.dx[0].G = Kernel::from_rows(k.tokens(), [&](Index t, double* __restrict row) {
    const Kernel::Row k_t = k.row(t), limit_t = limit.row(t);
    const double along = r.along, flat = centred ? r.flat : 0, r_t = inverse[t], c_t = own[t], sampling = x.f.sampling / d;
    const double *r_s = inverse.data(), *c_s = own.data();
    const auto entry = [=](Index s, double varies) {
      const double rho = k_t[s] * r_t * r_s[s];  // c_t c_s rho^2 is its square
      const double lost = along * (c_t + c_s[s] - rho * rho) + flat;
      const double jensen = 1 + varies + sampling * (3 + rho * rho) / 4;
      return limit_t[s] * (1 - std::min(lost, d) / d) * jensen;
    };
    for (Index s = 0; s < t; ++s) row[s] = entry(s, (3 * x.f.token_drift + x.f.drift) / 4);
    row[t] = entry(t, x.f.token_drift);
  });
  up.dx[0].r = {.along = 0, .flat = centred ? 0 : r.flat, .damp = 1, .stretch = r.stretch + x.f.thins, .weight_gain = r.weight_gain};
  up.spread = {{.level = p.x[0]->level(), .noise = 0}};
  return up;
}

}  // namespace stepzero
