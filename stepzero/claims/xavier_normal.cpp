#include "stepzero/claims/list.hpp"
#include "stepzero/claims/xavier.hpp"

namespace stepzero::claims {

namespace {

Evidence xavier_normal_evidence(const Settings& s) {
  Evidence e;
  const Drawn d = drawn(s, "xavier-normal", s("numerator"));
  e.equal(Kind::statement, "Var(W) (n_in + n_out) / 2", 1, d.variance);
  e.equal(Kind::statement, "kurtosis, 3 for a normal law", 3, d.kurtosis);
  return e;
}

}  // namespace

Claim xavier_normal() {
  return {.id = "xavier-normal",
          .source = kInitialization,
          .statement = "Xavier/Glorot initialization: W_ij ~ N(0, 2/(n_in + n_out)).",
          .tested = "The program's own draws under the scheme of that name, a feed-forward matrix of 48 x 192: variance and kurtosis.",
          .recorded = Verdict::holds,
          .condition = "",
          .correction = "",
          .why =
              "It is a definition, as Glorot and Bengio gave it (2010), and the drawn numbers have it. What it preserves is another claim: "
              "linear-preservation.",
          .settings = {draws(160), {"numerator", 2, "the variance is numerator / (n_in + n_out)"}},
          .run = xavier_normal_evidence};
}

}  // namespace stepzero::claims
