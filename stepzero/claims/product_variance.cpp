#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/core/law.hpp"

namespace stepzero::claims {

namespace {

constexpr Index rows = 32;  // of A, and columns of B

// E (C - E C)^2 of C = A B with `inner` numbers in between.
Running variance_of_product(const Settings& s, Index inner, const Distribution& a, const Distribution& b, int more = 1) {
  Lab lab(rows);
  const int c = lab.linear(lab.source(inner, a), rows, b);
  const double mean = static_cast<double>(inner) * a.mean * b.mean;
  return lab.run(s, more * s.draws(), [&](const Shot& shot) {
    const Moments m = shot.moments(c);
    return std::vector{m.variance() + (m.mean - mean) * (m.mean - mean)};
  })[0];
}

Law law_of(const Distribution& d) { return {d.mean, d.std() * d.std()}; }

Evidence product_variance_evidence(const Settings& s) {
  Evidence e;
  e.plot = {"variance of an entry of A B", "N", "Var C", true, true};
  Curve measured{"measured", {}, {}, false}, predicted{"N Var A Var B", {}, {}};
  const auto statement = [&](double n, const Distribution& a, const Distribution& b) {
    return std::pow(n, s("power")) * law_of(a).variance * law_of(b).variance;
  };
  const auto a = Distribution::normal(0.7), b = Distribution::normal(1.3);
  for (const Index n : {16, 64, 256}) {
    const Running r = variance_of_product(s, n, a, b);
    const double p = statement(static_cast<double>(n), a, b);
    e.equal(Kind::statement, fmt::format("Var C, normal entries, N = {}", n), p, r);
    for (auto [curve, y] : {std::pair(&measured, r.mean), std::pair(&predicted, p)}) {
      curve->x.push_back(static_cast<double>(n));
      curve->y.push_back(y);
    }
  }
  e.plot.curves = {predicted, measured};
  const auto u = Distribution::uniform(1.5);
  e.equal(Kind::statement, "Var C, uniform entries, N = 64", statement(64, u, u), variance_of_product(s, 64, u, u));
  const auto am = Distribution::normal(0.7, 0.5), bm = Distribution::normal(1.3, -0.4);
  const Running with_means = variance_of_product(s, 64, am, bm, 3);
  e.equal(Kind::correction, "Var C, entries with means 0.5 and -0.4, N = 64", sum_of_products(64, law_of(am), law_of(bm)).variance,
          with_means);
  e.equal(Kind::contrast, "N Var A Var B for the same entries", statement(64, am, bm), with_means);
  return e;
}

}  // namespace

Claim product_variance() {
  return {
      .id = "product-variance",
      .source = kProducts,
      .statement = "C = A B, entries independent with zero mean: Var(C) = N Var(A) Var(B).",
      .tested = "The variance of an entry of A B is N Var(A) Var(B) for N = 16, 64, 256, normal and uniform entries.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "With means: Var C = N (E[A]^2 Var B + E[B]^2 Var A + Var A Var B), the document's own rule for one product, summed.",
      .why =
          "An entry of C is a sum of N uncorrelated products, and each product of independent numbers of zero mean has variance "
          "Var(A) Var(B). Neither the law of the entries nor the independence within A matters beyond that. The assumption of zero means "
          "does matter: with means the two mixed terms are added. This is the rule the linear op's moment doors are built on.",
      .settings = {draws(500), {"power", 1, "Var(C) = N^power Var(A) Var(B)"}},
      .run = product_variance_evidence};
}

}  // namespace stepzero::claims
