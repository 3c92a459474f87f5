#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

constexpr double pi = std::numbers::pi;

Evidence he_relu_evidence(const Settings& s) {
  const Index width = s.size("width");
  const int layers = static_cast<int>(s.size("layers"));
  const double n = static_cast<double>(width);
  Lab lab(16);
  std::vector<int> sums, acts = {lab.source(width, Distribution::normal(1))};
  for (int l = 0; l < layers; ++l) {
    sums.push_back(lab.linear(acts.back(), width, Distribution::normal(std::sqrt(s("numerator") / n))));
    acts.push_back(lab.add(Elementwise<Relu>{width}, {sums.back()}));
  }
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    std::vector<double> seen;
    for (const int a : acts) seen.push_back(shot.square(a));
    seen.push_back(shot.moments(sums.back()).variance() / shot.moments(sums.front()).variance());
    seen.push_back(shot.moments(acts.back()).variance());
    seen.push_back(shot.moments(acts[1]).variance());
    return seen;
  });
  Evidence e;
  const auto last = static_cast<std::size_t>(layers);
  e.equal(Kind::statement, fmt::format("E[x^2] after {} layers over E[x^2] before", layers), 1, r[last], 0.1);
  e.equal(Kind::statement, "E[x^2] after one layer", 1, r[1]);
  e.equal(Kind::statement, "variance of the sums W x, last layer over first", 1, r[last + 1], 0.1);
  e.equal(Kind::counter, fmt::format("Var(x) after {} layers over Var(x) before", layers), 1, r[last + 2], 0.1);
  e.equal(Kind::correction, "Var(x) after one layer: (1 - 1/pi) of E[x^2]", 1 - 1 / pi, r[last + 3]);
  e.plot = {"signal through layers of ReLU", "layer", "E[x^2]", false, false};
  Curve measured{"measured, Var(W) = 2/n_in", {}, {}, false}, half{"Var(W) = 1/n_in would give", {}, {}};
  for (std::size_t l = 0; l <= last; ++l) {
    measured.x.push_back(static_cast<double>(l));
    measured.y.push_back(r[l].mean);
    half.x.push_back(static_cast<double>(l));
    half.y.push_back(std::pow(0.5, static_cast<double>(l)));
  }
  e.plot.curves = {measured, half};
  return e;
}

}  // namespace

Claim he_relu() {
  return {.id = "he-relu",
          .source = kInitialization,
          .statement = "He initialization variant, for ReLU networks: W_ij ~ N(0, 2/n_in).",
          .tested = "Through layers y = ReLU(W x) with that variance the signal neither grows nor shrinks.",
          .recorded = Verdict::holds_if,
          .condition = "the signal is measured by its second moment E[x^2], or by the variance of W x before the ReLU",
          .correction = "The variance of what leaves the ReLU is (1 - 1/pi) E[x^2] = 0.68 of the variance that entered the first layer.",
          .why =
              "W x is symmetric about 0, so the ReLU keeps exactly half of its second moment, and 2/n_in gives it back: this is exact at "
              "any width. What leaves a ReLU "
              "has a mean, though, and the next layer does not care: W x sums x^2, mean included. So E[x^2] is the number that is "
              "preserved, and Var(x), "
              "which the word preservation suggests, is lower by its squared mean from the first layer on.",
          .settings = {draws(600),
                       size("width", 256, 2048, "channels"),
                       size("layers", 6, 64, "layers"),
                       {"numerator", 2, "Var(W) = numerator / n_in"}},
          .run = he_relu_evidence};
}

}  // namespace stepzero::claims
