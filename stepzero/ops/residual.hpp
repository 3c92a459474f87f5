#pragma once
// What       y = a x + b f: the stream goes on, a branch is added, both with a scale (plain: 1, DeepNet: a > 1, Granite: b < 1).
// Shapes     x, f, y (T, n).
// Forward    y = a x + b f                                                  (1)
// Backward   dx = a dy                                                      (2)
//            df = b dy                                                      (3)
// Push       L_ts = a^2 K_ts + b^2 F_ts                                     (4)
// Pull       a^2 G to the stream, b^2 G to the branch                       (5)
// Assumes    the branch ends in a matrix of zero mean, so that stream and branch are uncorrelated
// Derived in docs/derivations/residual.md
#include "stepzero/ops/position.hpp"
#include "stepzero/ops/single_draw.hpp"

namespace stepzero {

struct Residual {
  static constexpr const char* kind = "residual";
  static constexpr Grade grade = Grade::large_width;
  Index width = 0;
  double skip_scale = 1;
  double branch_scale = 1;

  [[nodiscard]] int inputs() const { return 2; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    const S a = S(skip_scale);
    const S b = S(branch_scale);
    parallel_ranges(p.y.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        const S* x = p.x[0].row(t);
        const S* f = p.x[1].row(t);
        S* y = p.y.row(t);
        for (Index c = 0; c < width; ++c) y[c] = a * x[c] + b * f[c];  // (1)
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    pass_through(p.dy, p.dx[0], S(skip_scale));    // (2)
    pass_through(p.dy, p.dx[1], S(branch_scale));  // (3)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    const Moment& x = *p.x[0];
    const Moment& f = *p.x[1];
    const double a = skip_scale * skip_scale;
    const double b = branch_scale * branch_scale;
    const Index tokens = x.K.tokens();
    Moment y;
    y.K = p.draws.of_one() ? gram_of_sum(x.K, f.K, skip_scale, branch_scale, width, p.draws)
                           : Kernel::from(tokens, [&](Index t, Index s) { return a * x.K(t, s) + b * f.K(t, s); });  // (4)
    y.mean.resize(static_cast<std::size_t>(tokens));
    y.own.resize(static_cast<std::size_t>(tokens));
    for (Index t = 0; t < tokens; ++t) {
      y.mean[static_cast<std::size_t>(t)] = skip_scale * x.mean_at(t) + branch_scale * f.mean_at(t);
      y.own[static_cast<std::size_t>(t)] = skip_scale * x.own_at(t) + branch_scale * f.own_at(t);
    }
    // A pair's product is off by k noise^1/2 in the stream and g noise^1/2 in the branch. The branch is made of the stream: what the
    // stream's is off by, the branch's is too. What the branch adds of its own and the product of the two are fresh:
    //     all^2 noise = (k noise_x^1/2 + g same^1/2)^2 + g^2 (noise_f - same) + crossed / n, same the lesser of the two
    const double r = x.K.mean_cosine(), c = f.K.mean_cosine(), z = y.K.mean_cosine();
    const double size_x = a * size(x.K), size_f = b * size(f.K);
    const double k = size_x * (1 - r * r), g = size_f * (1 - c * c), all = (size_x + size_f) * (1 - z * z);
    const double total = 1 - z > 1e-9 ? all * all : 0;  // tokens that are alike differ by rounding
    const double crossed = 2 * size_x * size_f * ((1 + r * c) * (1 + z * z) - 2 * z * (r + c));
    const double same = std::min(f.noise, x.noise), both = k * std::sqrt(x.noise) + g * std::sqrt(same);
    const double fresh = g * g * (f.noise - same) + crossed / static_cast<double>(width);
    y.noise = total > 0 ? (both * both + fresh) / total : x.noise;
    if (total > 0 && !(x.jitter.empty() && f.jitter.empty())) {  // likewise, but what heads of the branch have made is fresh
      for (Index t = 0; t < tokens; ++t) {
        const double met = k * std::sqrt(x.jitter_at(t)) + g * std::sqrt(std::max(f.jitter_at(t) - f.fresh_at(t), 0.0));
        y.jitter.push_back((met * met + g * g * f.fresh_at(t)) / total);
      }
    }
    y.swing = x.swing + (total > 0 ? g * g * std::max(f.swing - x.swing, 0.0) / total : 0);
    const double share = a * x.K.trace() / std::max(y.K.trace(), 1e-300);
    if (k + g > 0) y.along = (k * (share * x.along + 1 - share) + g * ((1 - share) * f.along + share)) / (k + g);
    y.thins = share * x.thins + (1 - share) * f.thins;
    y.drift = share * share * x.drift + (1 - share) * (1 - share) * f.drift;
    y.sampling = share * share * x.sampling + (1 - share) * (1 - share) * f.sampling + 4 * share * (1 - share);
    y.token_drift = share * share * x.token_drift + (1 - share) * (1 - share) * f.token_drift;
    y.lone = share * share * x.lone + (1 - share) * (1 - share) * f.lone;
    y.flat = share * x.flat + (1 - share) * f.flat;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double a = skip_scale * skip_scale;
    const double b = branch_scale * branch_scale;
    // a gradient that is orthogonal to the sum is not so to its parts
    const double share = std::min(a * p.x[0]->K.trace() / std::max(p.y.K.trace(), 1e-300), 1.0);  // in one draw they may lean apart
    const double along = p.dy.along;
    return {{{.G = p.dy.G.scaled(a), .along = share * along + 1 - share, .flat = p.dy.flat, .damp = share * p.dy.damp},
             {.G = p.dy.G.scaled(b), .along = (1 - share) * along + share, .flat = p.dy.flat, .damp = (1 - share) * p.dy.damp}},
            {}};  // (5)
  }

 private:
  static double size(const Kernel& K) { return K.trace() / static_cast<double>(K.tokens()); }
};
static_assert(Op<Residual>);

}  // namespace stepzero
