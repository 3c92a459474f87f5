#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

// E[y^2] / E[x^2] of y = W2 ReLU(W1 x), entries drawn so that |W1|_F |W2|_F is `product`.
Running gain(const Settings& s, double product) {
  const Index d = s.size("width"), f = s.size("hidden");
  const double std = std::sqrt(product / static_cast<double>(d * f));
  Lab lab(32);
  const int x = lab.source(d, Distribution::normal(1));
  const int h = lab.add(Elementwise<Relu>{f}, {lab.linear(x, f, Distribution::normal(std))});
  const int y = lab.linear(h, d, Distribution::normal(std));
  return lab.run(s, s.draws(), [&](const Shot& shot) { return std::vector{shot.square(y) / shot.square(x)}; })[0];
}

Evidence ffn_frobenius_evidence(const Settings& s) {
  Evidence e;
  const double size = static_cast<double>(s.size("width") * s.size("hidden"));
  const double kept = std::sqrt(2 * size), said = s("product") > 0 ? s("product") : kept;
  e.equal(Kind::statement, fmt::format("E[y^2]/E[x^2] at |W1| |W2| = {:.4g}", said), 1, gain(s, said));
  e.equal(Kind::correction, fmt::format("E[y^2]/E[x^2] at |W1| |W2| = sqrt(2 d F) = {:.4g}", kept), 1, gain(s, kept));
  e.equal(Kind::correction, "E[y^2]/E[x^2] = 1/(2 d F) at |W1| |W2| = 1", 1 / (2 * size), gain(s, 1));
  e.plot = {"gain of a ReLU feed-forward branch", "product of the Frobenius norms", "E[y^2]/E[x^2]", true, true};
  Curve measured{"measured", {}, {}, false}, predicted{"P^2 / (2 d F)", {}, {}};
  for (const double p : {1.0, 10.0, 100.0, kept}) {
    measured.x.push_back(p);
    measured.y.push_back(gain(s, p).mean);
    predicted.x.push_back(p);
    predicted.y.push_back(p * p / (2 * size));
  }
  e.plot.curves = {predicted, measured};
  return e;
}

}  // namespace

Claim ffn_frobenius() {
  return {.id = "ffn-frobenius",
          .source = kInitialization,
          .statement = "Feed-forward initialization: |W1|_F |W2|_F is about 1.",
          .tested = "A feed-forward branch y = W2 ReLU(W1 x) with that product keeps the signal: E[y^2] = E[x^2].",
          .recorded = Verdict::fails,
          .condition = "",
          .correction =
              "E[y^2] = P^2/(2 d F) E[x^2] for a product P of the norms: a branch that keeps the signal has P = sqrt(2 d F), and at P = 1 "
              "it keeps 1/(2 d F) of it.",
          .why =
              "A Frobenius norm sums over all entries, so that of a matrix with unit gain grows like the square root of its outputs: it is "
              "not a measure of gain. At d = 768 and "
              "F = 3072 the norm of a signal-preserving branch is 2172, and a branch of norm 1 adds five millionths of the stream's size: "
              "the layer starts as if it were not there. "
              "That may be wanted (ReZero does it on purpose) but it is not preservation.",
          .settings = {draws(200),
                       size("width", 96, 2048, "d"),
                       size("hidden", 384, 8192, "F"),
                       {"product", 1, "of the norms; 0: sqrt(2 d F)", 0, 1e6}},
          .run = ffn_frobenius_evidence};
}

}  // namespace stepzero::claims
