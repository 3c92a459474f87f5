#pragma once
// Finite width of a sum. In one draw the product of two tokens deviates by k noise^1/2 in the stream and by g noise^1/2 in the branch,
// k and g their contrasts. The branch is computed from the stream, so their deviations go together up to the lesser noise, `same`, and
// add. What the branch's own matrices add, and the products of stream and branch, are independent, and squares add:
//     all^2 noise = (k noise_x^1/2 + g same^1/2)^2 + g^2 (noise_f - same) + crossed / n,  same the lesser of the two
// Everything else is a mean, by the shares of the sum's square.
// Derived in docs/derivations/residual.md
#include <algorithm>
#include <cmath>

#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/residual.hpp"
#include "stepzero/ops/single_draw.hpp"

namespace stepzero {

namespace finite {

// How the two parts of a sum compare: the share of the stream in the square, and the contrasts of stream, branch and sum.
struct SumParts {
  double share, k, g, all;
  double crossed;  // variance of the products of the two, in units of 1 / width

  SumParts(const Residual& op, const Moment& x, const Moment& f, const Kernel& sum) {
    const auto size = [](const Kernel& K) { return K.trace() / static_cast<double>(K.tokens()); };
    const double a = op.skip_scale * op.skip_scale, b = op.branch_scale * op.branch_scale;
    const double r = x.K.mean_cosine(), c = f.K.mean_cosine(), z = sum.mean_cosine();
    const double size_x = a * size(x.K), size_f = b * size(f.K);
    share = a * x.K.trace() / std::max(sum.trace(), 1e-300);
    k = size_x * (1 - r * r);
    g = size_f * (1 - c * c);
    all = 1 - z > 1e-9 ? (size_x + size_f) * (1 - z * z) : 0;  // tokens that are alike differ by rounding
    crossed = 2 * size_x * size_f * ((1 + r * c) * (1 + z * z) - 2 * z * (r + c));
  }
};

inline Fluctuation of_sum(const Residual& op, const DownWire& x, const DownWire& f, const Kernel& sum) {
  const SumParts p(op, x, f, sum);
  const double total = p.all * p.all, share = p.share;
  const double same = std::min(f.f.noise, x.f.noise), both = p.k * std::sqrt(x.f.noise) + p.g * std::sqrt(same);
  const double fresh = p.g * p.g * (f.f.noise - same) + p.crossed / static_cast<double>(op.width);
  Fluctuation y;
  y.noise = total > 0 ? (both * both + fresh) / total : x.f.noise;
  if (total > 0 && !(x.f.jitter.empty() && f.f.jitter.empty())) {  // likewise; what the branch's own heads made is independent
    for (Index t = 0; t < sum.tokens(); ++t) {
      const double met = p.k * std::sqrt(x.f.jitter_at(t)) + p.g * std::sqrt(std::max(f.f.jitter_at(t) - f.f.fresh_at(t), 0.0));
      y.jitter.push_back((met * met + p.g * p.g * f.f.fresh_at(t)) / total);
    }
  }
  y.swing = x.f.swing + (total > 0 ? p.g * p.g * std::max(f.f.swing - x.f.swing, 0.0) / total : 0);
  if (p.k + p.g > 0) y.along = (p.k * (share * x.f.along + 1 - share) + p.g * ((1 - share) * f.f.along + share)) / (p.k + p.g);
  const auto mean = [&](double of_x, double of_f) { return share * of_x + (1 - share) * of_f; };
  const auto squares = [&](double of_x, double of_f) { return share * share * of_x + (1 - share) * (1 - share) * of_f; };
  y.thins = mean(x.f.thins, f.f.thins);
  y.flat = mean(x.f.flat, f.f.flat);
  y.drift = squares(x.f.drift, f.f.drift);
  y.token_drift = squares(x.f.token_drift, f.f.token_drift);
  y.lone = squares(x.f.lone, f.f.lone);
  y.sampling = squares(x.f.sampling, f.f.sampling) + 4 * share * (1 - share);
  return y;
}

}  // namespace finite

inline DownWire push_finite(const Residual& op, const PushDoor& p) {
  DownWire y{op.push(p)};
  y.f = finite::of_sum(op, *p.x[0], *p.x[1], y.K);
  return y;
}

// In one draw the Gram matrices of x and f are given. The products <x_t, f_s> are not, and are drawn.
inline DownWire push_drawn(const Residual& op, const PushDoor& p) {
  DownWire y{op.push(p)};
  y.K = gram_of_sum(p.x[0]->K, p.x[1]->K, op.skip_scale, op.branch_scale, op.width, p.draws);
  y.f = finite::of_sum(op, *p.x[0], *p.x[1], y.K);
  return y;
}

// A gradient that is orthogonal to the sum is not orthogonal to its parts.
inline Pulled pull_finite(const Residual& op, const PullDoor& p) {
  Pulled up = op.pull(p);
  const Response& r = p.dy.r;
  const double a = op.skip_scale * op.skip_scale;
  const double share = std::min(a * p.x[0]->K.trace() / std::max(p.y.K.trace(), 1e-300), 1.0);  // in one draw <x, f> may be below 0
  const auto part = [&](double own) -> Response {
    return {.along = own * r.along + 1 - own, .flat = r.flat, .damp = own * r.damp, .stretch = r.stretch};
  };
  up.dx[0].r = part(share);
  up.dx[1].r = part(1 - share);
  return up;
}

}  // namespace stepzero
