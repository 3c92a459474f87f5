#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"
#include "stepzero/walks/draw.hpp"

namespace stepzero::claims {

namespace {

struct Drawn {
  Running variance, kurtosis, largest;  // in units of 2/(fan_in + fan_out); largest of sqrt(6/(fan_in + fan_out))
};

// The first feed-forward matrix of a model, as the scheme draws it.
Drawn drawn(const Settings& s, const char* scheme, double numerator) {
  const Model m = make_model({.scheme = scheme, .set = {"layers=1", "width=48"}});
  std::size_t param = 0;
  while (m.graph.params[param].role != Role::ffn_in) ++param;
  const Param& p = m.graph.params[param];
  const double fans = static_cast<double>(p.fan_in + p.fan_out);
  const auto r = average(s.draws(), [&](int draw) {
    const std::vector<float> w = draw_tensor(m.graph, m.laws, param, s.seed(draw));
    double second = 0, fourth = 0, largest = 0;
    for (const double x : w) {
      second += x * x / static_cast<double>(w.size());
      fourth += x * x * x * x / static_cast<double>(w.size());
      largest = std::max(largest, std::abs(x));
    }
    return std::vector{second * fans / numerator, fourth / (second * second), largest / std::sqrt(6 / fans)};
  });
  return {r[0], r[1], r[2]};
}

// What the two laws do to a signal: Var(Wx) under one over that under the other.
Running same_signal(const Settings& s) {
  Lab lab(16);
  const int x = lab.source(96, Distribution::normal(1));
  const int normal = lab.linear(x, 96, Distribution::normal(std::sqrt(2.0 / 192)));
  const int uniform = lab.linear(x, 96, Distribution::uniform(std::sqrt(6.0 / 192)));
  return lab.run(s, s.draws(), [&](const Shot& shot) { return std::vector{shot.square(uniform) / shot.square(normal)}; })[0];
}

Evidence run_normal(const Settings& s) {
  Evidence e;
  const Drawn d = drawn(s, "xavier-normal", s("numerator"));
  e.equal(Kind::statement, "Var(W) (n_in + n_out) / 2", 1, d.variance);
  e.equal(Kind::statement, "kurtosis, 3 for a normal law", 3, d.kurtosis);
  return e;
}

Evidence run_uniform(const Settings& s) {
  Evidence e;
  const Drawn d = drawn(s, "xavier-uniform", s("numerator") / 3);
  e.equal(Kind::statement, "Var(W) (n_in + n_out) / 2", 1, d.variance);
  e.equal(Kind::statement, "kurtosis, 9/5 for a uniform law", 1.8, d.kurtosis);
  e.at_most(Kind::statement, "largest |W| over its bound", 1, d.largest);
  e.equal(Kind::statement, "Var(Wx), uniform over normal", 1, same_signal(s));
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
          .settings = {draws(100), {"numerator", 2, "the variance is numerator / (n_in + n_out)"}},
          .run = run_normal};
}

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
      .settings = {draws(100), {"numerator", 6, "the bound is sqrt(numerator / (n_in + n_out))"}},
      .run = run_uniform};
}

}  // namespace stepzero::claims
