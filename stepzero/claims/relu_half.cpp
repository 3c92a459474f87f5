#include <numbers>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

constexpr double pi = std::numbers::pi;

Evidence relu_half_evidence(const Settings& s) {
  Evidence e;
  e.plot = {"ReLU of numbers with mean m and variance 1", "m", "ratio", false, false};
  Curve square{"E[y^2] / E[x^2]", {}, {}, false}, variance{"Var(y) / Var(x)", {}, {}, false};
  for (const double mean : {-1.0, -0.5, 0.0, 0.5, 1.0}) {
    Lab lab(8);
    const int x = lab.source(s.size("width"), Distribution::normal(1, mean));
    const int y = lab.add(Elementwise<Relu>{s.size("width")}, {x});
    const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
      const Moments before = shot.moments(x), after = shot.moments(y);
      return std::vector{after.second_moment() / before.second_moment(), after.variance() / before.variance()};
    });
    for (Curve* c : {&square, &variance}) c->x.push_back(mean);
    square.y.push_back(r[0].mean);
    variance.y.push_back(r[1].mean);
    if (mean == 0) {
      e.equal(Kind::statement, "E[y^2] / E[x^2], mean 0", s("factor"), r[0]);
      e.equal(Kind::counter, "Var(y) / Var(x), mean 0", s("factor"), r[1]);
      e.equal(Kind::correction, "Var(y) / Var(x) = 1/2 - 1/(2 pi), mean 0", 0.5 - 0.5 / pi, r[1]);
    }
    if (mean == 1) e.equal(Kind::counter, "E[y^2] / E[x^2], mean 1", s("factor"), r[0]);
  }
  e.plot.curves = {square, variance};
  return e;
}

}  // namespace

Claim relu_half() {
  return {
      .id = "relu-half",
      .source = kInitialization,
      .statement = "ReLU activation affects variance by factor 1/2.",
      .tested = "For normal x and y = ReLU(x): E[y^2] / E[x^2] = 1/2, and, read literally, Var(y) / Var(x) = 1/2.",
      .recorded = Verdict::holds_if,
      .condition = "variance is read as second moment E[x^2], and x has mean 0",
      .correction = "Var(ReLU(x)) = (1/2 - 1/(2 pi)) Var(x) = 0.3408 Var(x) for normal x of mean 0.",
      .why =
          "Half of a symmetric law is cut away, and with it half of the second moment. What is left has mean 1/sqrt(2 pi), whose square, "
          "0.159, is missing in "
          "the variance. Layers that follow see the second moment, so the factor 1/2 is the useful one and the factor behind He's rule.",
      .settings = {draws(300), size("width", 1024, 65536, "channels"), {"factor", 0.5, "the factor"}},
      .run = relu_half_evidence};
}

}  // namespace stepzero::claims
