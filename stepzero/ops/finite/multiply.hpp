#pragma once
// Finite width of a product y = a o b whose factors come from one input, so that their cosines deviate together in one draw. A cosine of
// y is the product rho_a rho_b, and deviates by rho_b d rho_a + rho_a d rho_b.
//
// Push       L_ts = limit + sqrt(Ka_tt Ka_ss) sqrt(Kb_tt Kb_ss) (1 - rho_b^2)^2 noise,  the mean of the product of the two deviations
// Pull       G is smaller where y came out large in one draw and a norm behind divided the gradient (damp), or took out what lies
//            along y (along)
// Derived in docs/derivations/multiply.md
#include <algorithm>
#include <cmath>

#include "stepzero/ops/finite/carry.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/multiply.hpp"

namespace stepzero {

namespace finite {

// Deviations are in units of 1 - rho^2 (noise, jitter) and of 1 - rho (swing). The channels of a, b and y add 2/n to the noise.
inline Fluctuation of_product(const DownWire& a, const DownWire& b, const Kernel& product, Index width) {
  const double ra = a.K.mean_cosine(), rb = b.K.mean_cosine(), ry = product.mean_cosine();
  const bool alike = !(1 - ry > 1e-9);
  const auto both = [&](double noise_a, double noise_b, double apart_a, double apart_b, double apart) {
    const double off =
        std::abs(rb) * apart_a * std::sqrt(std::max(noise_a, 0.0)) + std::abs(ra) * apart_b * std::sqrt(std::max(noise_b, 0.0));
    return alike ? std::max(noise_a, noise_b) : off * off / (apart * apart);
  };
  const auto pairs = [&](double noise_a, double noise_b) { return both(noise_a, noise_b, 1 - ra * ra, 1 - rb * rb, 1 - ry * ry); };
  const auto together = [](double of_a, double of_b) {  // both vary together: standard deviations add
    const double deviation = std::sqrt(of_a) + std::sqrt(of_b);
    return deviation * deviation;
  };
  Fluctuation y;
  y.drift = together(a.f.drift, b.f.drift);
  y.token_drift = together(a.f.token_drift, b.f.token_drift);
  y.sampling = (1 + a.f.sampling) * (1 + b.f.sampling) - 1;
  y.noise = pairs(a.shared_noise(), b.shared_noise()) + 2 / static_cast<double>(width);
  for (Index t = 0; t < std::ssize(b.f.jitter); ++t) {
    y.jitter.push_back(pairs(a.f.jitter_at(t), b.f.jitter_at(t)));
    y.fresh.push_back(pairs(a.f.fresh_at(t), b.f.fresh_at(t)));
  }
  y.swing = both(a.f.swing, b.f.swing, 1 - ra, 1 - rb, 1 - ry);
  y.thins = a.f.thins + b.f.thins;
  return y;
}

}  // namespace finite

inline DownWire push_finite(const Multiply& op, const PushDoor& p) {
  const DownWire &a = *p.x[0], &b = *p.x[1];
  DownWire y{op.push(p)};
  const Correlation cosine(b.K);
  const Kernel limit = y.K;
  y.K = Kernel::from(limit.tokens(), [&](Index t, Index s) {
    if (t == s) return limit(t, s);
    const double slope = std::sqrt(a.K(t, t) * a.K(s, s)) - a.mean_at(t) * a.mean_at(s);
    const double apart = 1 - cosine(t, s) * cosine(t, s), shared = b.shared_noise() + b.f.jitter_at(std::max(t, s));
    return limit(t, s) + slope * std::sqrt(b.K(t, t) * b.K(s, s)) * apart * apart * shared;
  });
  y.f = finite::of_product(a, b, y.K, op.width);
  return y;
}

inline Pulled pull_finite(const Multiply& op, const PullDoor& p) {
  const Response& r = p.dy.r;
  const double across = 1 - r.along;
  Pulled up = op.pull(p);
  const auto feel = [&](UpWire& d, const DownWire& mine, const DownWire& other) {
    const double less = r.damp * std::sqrt(other.f.token_drift * p.y.f.token_drift) + (r.damp + across) * other.own_sampling();
    // G ~ |other|^2 |y|^(-2 damp), and the sizes of other and of y vary with mine
    const double follows = mine.f.token_drift > 0 ? std::sqrt(other.f.token_drift / mine.f.token_drift) : 0;
    d.G = d.G.scaled(1 - less);
    d.r = {.along = r.along, .twin = 1, .damp = r.damp * (1 + follows) - follows, .stretch = r.stretch};
  };
  feel(up.dx[0], *p.x[0], *p.x[1]);
  feel(up.dx[1], *p.x[1], *p.x[0]);
  return up;
}

}  // namespace stepzero
