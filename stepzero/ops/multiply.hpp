#pragma once
// What       y = a o b: the gate of a gated feed-forward (a = f(gate), b = up).
// Shapes     a, b, y (T, n).
// Forward    y = a o b                                                      (1)
// Backward   da = b o dy                                                    (2)
//            db = a o dy                                                    (3)
// Push       L_ts = Ka_ts Kb_ts                                             (4)
// Pull       Ga_ts = Kb_ts G_ts,  Gb_ts = Ka_ts G_ts                        (5)
// Assumes    a and b independent
// Derived in docs/derivations/multiply.md
#include <algorithm>

#include "stepzero/kernels/products.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Multiply {
  static constexpr const char* kind = "multiply";
  static constexpr Grade grade = Grade::large_width;
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

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment y;
    const Index tokens = p.batch.tokens();
    const Moment &a = *p.x[0], &b = *p.x[1];
    const Correlation cosine(b.K);
    // a and b come from one input: its kernel's noise moves both the same way, which lifts the product of two tokens
    y.K = Kernel::from(tokens, [&](Index t, Index s) {
      const double product = a.K(t, s) * b.K(t, s);  // (4)
      if (t == s) return product;
      const double slope = std::sqrt(a.K(t, t) * a.K(s, s)) - a.mean_at(t) * a.mean_at(s);
      const double apart = 1 - cosine(t, s) * cosine(t, s), shared = b.shared_noise() + b.jitter_at(std::max(t, s));
      return product + slope * std::sqrt(b.K(t, t) * b.K(s, s)) * apart * apart * shared;
    });
    y.mean.resize(static_cast<std::size_t>(tokens));
    for (Index t = 0; t < tokens; ++t) y.mean[static_cast<std::size_t>(t)] = a.mean_at(t) * b.mean_at(t);
    const double drift = std::sqrt(a.drift) + std::sqrt(b.drift);
    y.drift = drift * drift;
    const double at_token = std::sqrt(a.token_drift) + std::sqrt(b.token_drift);
    y.token_drift = at_token * at_token;
    y.sampling = (1 + a.sampling) * (1 + b.sampling) - 1;
    carry_pairs(a, b, y);
    y.thins = a.thins + b.thins;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Moment &a = *p.x[0], &b = *p.x[1];
    const double damp = p.dy.damp, across = 1 - p.dy.along;
    const auto through = [&](const Moment& mine, const Moment& other) {
      // where y came out large in one draw, a norm behind has made the gradient small, and taken out what lies along y
      const double less = damp * std::sqrt(other.token_drift * p.y.token_drift) + (damp + across) * other.own_sampling();
      // G ~ |other|^2 |y|^(-2 damp), and the sizes of both go with mine
      const double follows = mine.token_drift > 0 ? std::sqrt(other.token_drift / mine.token_drift) : 0;
      const Kernel G = Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return other.K(t, s) * p.dy.G(t, s); });
      return Adjoint{.G = G.scaled(1 - less), .along = p.dy.along, .twin = 1, .damp = damp * (1 + follows) - follows};
    };
    return {{through(a, b), through(b, a)}, {}};  // (5)
  }

 private:
  // A cosine is the product of two, and both are off by what the input's is: rho' = rho_a' rho_b + rho_a rho_b'. Noise counts in units
  // of 1 - rho^2, swing in those of 1 - rho. Channels of a, of b and of the product add their own.
  void carry_pairs(const Moment& a, const Moment& b, Moment& y) const {
    const double ra = a.K.mean_cosine(), rb = b.K.mean_cosine(), ry = y.K.mean_cosine();
    const bool alike = !(1 - ry > 1e-9);
    const auto both = [&](double noise_a, double noise_b, double apart_a, double apart_b, double apart) {
      const double off =
          std::abs(rb) * apart_a * std::sqrt(std::max(noise_a, 0.0)) + std::abs(ra) * apart_b * std::sqrt(std::max(noise_b, 0.0));
      return alike ? std::max(noise_a, noise_b) : off * off / (apart * apart);
    };
    const auto pairs = [&](double noise_a, double noise_b) { return both(noise_a, noise_b, 1 - ra * ra, 1 - rb * rb, 1 - ry * ry); };
    y.noise = pairs(a.shared_noise(), b.shared_noise()) + 2 / static_cast<double>(width);
    for (std::size_t t = 0; t < b.jitter.size(); ++t) {
      const auto at = static_cast<Index>(t);
      y.jitter.push_back(pairs(a.jitter_at(at), b.jitter_at(at)));
      y.fresh.push_back(pairs(a.fresh_at(at), b.fresh_at(at)));
    }
    y.swing = both(a.swing, b.swing, 1 - ra, 1 - rb, 1 - ry);
  }

  template <class S>
  static void product(View<const S> a, View<const S> b, const Into<S>& into) {
    if (into.wanted()) hadamard(a, b, into.d, into.add);
  }
};
static_assert(Op<Multiply>);

}  // namespace stepzero
