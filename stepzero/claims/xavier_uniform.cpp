#include <cmath>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/xavier.hpp"

namespace stepzero::claims {

namespace {

// What the two laws do to a signal: Var(Wx) under one over that under the other.
Running same_signal(const Settings& s) {
  Lab lab(16);
  const int x = lab.source(96, Distribution::normal(1));
  const int normal = lab.linear(x, 96, Distribution::normal(std::sqrt(2.0 / 192)));
  const int uniform = lab.linear(x, 96, Distribution::uniform(std::sqrt(6.0 / 192)));
  return lab.run(s, s.draws(), [&](const Shot& shot) { return std::vector{shot.square(uniform) / shot.square(normal)}; })[0];
}

Evidence xavier_uniform_evidence(const Settings& s) {
  Evidence e;
  const Drawn d = drawn(s, "xavier-uniform", s("numerator") / 3);
  e.equal(Kind::statement, "Var(W) (n_in + n_out) / 2", 1, d.variance);
  e.equal(Kind::statement, "kurtosis, 9/5 for a uniform law", 1.8, d.kurtosis);
  e.at_most(Kind::statement, "largest |W| over its bound", 1, d.largest);
  e.equal(Kind::statement, "Var(Wx), uniform over normal", 1, same_signal(s));
  return e;
}

}  // namespace

Claim xavier_uniform() {
  return {
      .id = "xavier-uniform",
      .source = kInitialization,
      .statement = "Alternative form: W_ij ~ U(-sqrt(6/(n_in + n_out)), sqrt(6/(n_in + n_out))).",
      .tested =
          "The uniform draws have the variance of the normal ones, 2/(n_in + n_out), stay within the bound, and do the same to a signal.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "",
      .why =
          "A uniform law on [-b, b] has variance b^2/3, so b^2 = 6/(n_in + n_out) gives the variance of the normal form. A sum over many "
          "inputs sees the variance "
          "only; the fourth moment (kurtosis 1.8 instead of 3) is lost within it.",
      .settings = {draws(160), {"numerator", 6, "the bound is sqrt(numerator / (n_in + n_out))"}},
      .run = xavier_uniform_evidence};
}

}  // namespace stepzero::claims
