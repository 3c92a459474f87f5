#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

struct Gains {
  Running forward, backward;
};

// Var(W x) / Var(x), and the same of the gradient on its way back.
Gains gains(const Settings& s, Index in, Index out, double variance) {
  Lab lab(16);
  const int x = lab.source(in, Distribution::normal(1));
  const int y = lab.linear(x, out, Distribution::normal(std::sqrt(variance)));
  lab.pull(y);
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    return std::vector{shot.square(y) / shot.square(x), shot.gradient_square(x) / shot.gradient_square(y)};
  });
  return {r[0], r[1]};
}

Evidence linear_preservation_evidence(const Settings& s) {
  Evidence e;
  e.plot = {"gain of a linear layer under Glorot's variance", "n_in / n_out", "variance ratio", true, false};
  Curve forward{"forward, measured", {}, {}, false}, backward{"backward, measured", {}, {}, false}, pf{"2 n_in / (n_in + n_out)", {}, {}},
      pb{"2 n_out / (n_in + n_out)", {}, {}};
  const double wide = 320;  // n_in + n_out
  const double glorot = s("numerator") / wide;
  const Gains square = gains(s, 160, 160, glorot);
  e.equal(Kind::statement, "Var(Wx)/Var(x), n_in = n_out", 1, square.forward);
  e.equal(Kind::statement, "the same of the gradient, n_in = n_out", 1, square.backward);
  for (const Index in : {32, 64, 160, 256, 288}) {
    const double n = static_cast<double>(in), m = wide - n;
    const Gains g = in == 160 ? square : gains(s, in, static_cast<Index>(m), glorot);
    for (auto [curve, y] : {std::pair(&forward, g.forward.mean), std::pair(&backward, g.backward.mean), std::pair(&pf, 2 * n / wide),
                            std::pair(&pb, 2 * m / wide)}) {
      curve->x.push_back(n / m);
      curve->y.push_back(y);
    }
    if (in != 64 && in != 256) continue;
    e.equal(Kind::counter, fmt::format("Var(Wx)/Var(x), n_in = {}, n_out = {}", in, m), 1, g.forward);
    e.equal(Kind::counter, fmt::format("the same of the gradient, n_in = {}, n_out = {}", in, m), 1, g.backward);
    e.equal(Kind::correction, fmt::format("2 n_in / (n_in + n_out), n_in = {}, n_out = {}", in, m), 2 * n / wide, g.forward);
    e.equal(Kind::correction, fmt::format("2 n_out / (n_in + n_out) for the gradient, n_in = {}, n_out = {}", in, m), 2 * m / wide,
            g.backward);
  }
  e.equal(Kind::correction, "Var(W) = 1/n_in: forward, n_in = 256, n_out = 64", 1, gains(s, 256, 64, 1.0 / 256).forward);
  e.equal(Kind::correction, "Var(W) = 1/n_out: backward, n_in = 256, n_out = 64", 1, gains(s, 256, 64, 1.0 / 64).backward);
  e.plot.curves = {pf, pb, forward, backward};
  return e;
}

}  // namespace

Claim linear_preservation() {
  return {.id = "linear-preservation",
          .source = kInitialization,
          .statement = "Var(Wx) = Var(x) requires Var(W_ij) = 2/(n_in + n_out).",
          .tested = "With that variance, Var(Wx)/Var(x) = 1 and the gradient's variance is preserved on the way back.",
          .recorded = Verdict::holds_if,
          .condition = "n_in = n_out",
          .correction =
              "Var(Wx) = n_in Var(W) Var(x) and, for the gradient, n_out Var(W): forward needs 1/n_in, backward 1/n_out. Under 2/(n_in + "
              "n_out) the gains are "
              "2 n_in/(n_in + n_out) and 2 n_out/(n_in + n_out).",
          .why =
              "Forward a number sums n_in products, backward n_out. One variance cannot be 1/n_in and 1/n_out at once unless the matrix is "
              "square; Glorot and Bengio "
              "took the harmonic mean of the two as a compromise, so that the two gains average to 1. In a transformer the attention "
              "matrices are square "
              "and the rule is exact there; the feed-forward matrices are four to one, and their gains are 0.4 and 1.6.",
          .settings = {draws(400), {"numerator", 2, "Var(W) = numerator / (n_in + n_out)"}},
          .run = linear_preservation_evidence};
}

}  // namespace stepzero::claims
