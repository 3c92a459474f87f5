#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

constexpr Index kTokens = 64, kHeads = 4;

struct Scores {
  Running mean, square;
};

// Moments of all scores of an attention that reads q and k from these nodes.
Scores scores(const Settings& s, Lab& lab, int q, int k, Index head_dim, double scale) {
  const int v = lab.source(kHeads, Distribution::normal(1));
  const int mix = lab.add(
      Attention{.heads = kHeads, .kv_heads = kHeads, .key_dim = head_dim, .value_dim = 1, .scale = scale, .causal = false}, {q, k, v});
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    const AttentionSummary& a = shot.attention.at(mix);
    return std::vector{a.mean_score, a.score_variance + a.mean_score * a.mean_score};
  });
  return {r[0], r[1]};
}

Evidence score_moments_evidence(const Settings& s) {
  Evidence e;
  e.plot = {"variance of q.k", "d_k", "Var", true, true};
  Curve measured{"measured", {}, {}, false}, predicted{"d_k", {}, {}}, scaled{"divided by sqrt(d_k)", {}, {}};
  for (const Index d : {16, 64, 256}) {
    const double n = static_cast<double>(d);
    const auto unit = [&](double scale) {
      Lab lab(kTokens);
      const int q = lab.source(kHeads * d, Distribution::normal(1));
      return scores(s, lab, q, lab.source(kHeads * d, Distribution::normal(1)), d, scale);
    };
    const Scores raw = unit(1), divided = unit(std::pow(n, -s("division")));
    e.near(Kind::statement, fmt::format("E[q.k] / sqrt(d_k), d_k = {}", d), 0,
           {raw.mean.count, raw.mean.mean / std::sqrt(n), raw.mean.deviations / n}, 0.01);
    e.equal(Kind::statement, fmt::format("Var(q.k), d_k = {}", d), std::pow(n, s("power")), raw.square);
    e.equal(Kind::statement, fmt::format("Var(q.k / sqrt(d_k)), d_k = {}", d), 1, divided.square);
    for (Curve* c : {&measured, &predicted, &scaled}) c->x.push_back(n);
    measured.y.push_back(raw.square.mean);
    predicted.y.push_back(n);
    scaled.y.push_back(divided.square.mean);
  }
  e.plot.curves = {predicted, measured, scaled};
  constexpr Index n = 256, d = 64;
  constexpr double x = 0.8, sq = 0.05, sk = 0.09;
  Lab lab(kTokens);
  const int input = lab.source(n, Distribution::normal(x));
  const int q = lab.linear(input, kHeads * d, Distribution::normal(sq));
  const Scores real = scores(s, lab, q, lab.linear(input, kHeads * d, Distribution::normal(sk)), d, 1);
  const double K = x * x;
  e.equal(Kind::correction, "Var(q.k) with q = W_q x, k = W_k x, n = 256, d_k = 64", d * (n * sq * sq * K) * (n * sk * sk * K),
          real.square);
  return e;
}

}  // namespace

Claim score_moments() {
  return {
      .id = "score-moments",
      .source = kBackprop,
      .statement =
          "For q, k with independent components of mean 0 and variance 1, q.k has mean 0 and variance d_k; hence the division by "
          "sqrt(d_k).",
      .tested =
          "Over all pairs of an attention, for d_k = 16, 64, 256: E[q.k] = 0, Var(q.k) = d_k, and after the division the variance is 1.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction =
          "With weights: Var(q.k) = d_k (n s_q^2 K_tt)(n s_k^2 K_jj), with K the mean square of the tokens and s the std of the matrices.",
      .why =
          "It is the product rule with one row and one column. In a model q and k are W_q x and W_k x, and their components have unit "
          "variance only if "
          "the scheme makes it so: the division by sqrt(d_k) sets the scores' variance to the product of the two variances, whatever that "
          "is.",
      .settings = {draws(300), {"power", 1, "Var(q.k) = d_k^power"}, {"division", 0.5, "q.k is divided by d_k^division"}},
      .run = score_moments_evidence};
}

}  // namespace stepzero::claims
