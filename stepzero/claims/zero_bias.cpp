#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/kernels/statistics.hpp"

namespace stepzero::claims {

namespace {

struct Seen {
  Running square, cosine;
};

// Independent tokens of unit size through `layers` linear layers of unit gain, biases of std `bias`.
Seen look(const Settings& s, double bias, int layers) {
  const Index d = s.size("width"), tokens = 16;
  Lab lab(tokens);
  int x = lab.source(d, Distribution::normal(1));
  const auto w = Distribution::normal(1 / std::sqrt(static_cast<double>(d))), b = Distribution::normal(bias);
  for (int l = 0; l < layers; ++l) x = lab.add(Linear{d, d, true}, {x}, {w, b});
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    const SignalStats stats = signal_stats(shot.output(x), 1, tokens);
    return std::vector{stats.moments.second_moment(), stats.token_cosine};
  });
  return {r[0], r[1]};
}

Evidence zero_bias_evidence(const Settings& s) {
  Evidence e;
  const Seen zero = look(s, s("bias"), 1), deep = look(s, s("bias"), 6);
  e.equal(Kind::statement, "E[y^2]/E[x^2] of a layer of unit gain, biases 0", 1, zero.square);
  e.near(Kind::statement, "cosine between independent tokens after it", 0, zero.cosine, 0.02);
  e.near(Kind::statement, "the same after six layers", 0, deep.cosine, 0.02);
  constexpr double bias = 0.5;
  const Seen one = look(s, bias, 1), six = look(s, bias, 6);
  const auto cosine = [](double sum) { return sum / (1 + sum); };
  e.near(Kind::contrast, "cosine after a layer with biases of std 0.5", 0, one.cosine, 0.02);
  e.equal(Kind::correction, "E[y^2] = 1 + b^2, b = 0.5", 1 + bias * bias, one.square);
  e.equal(Kind::correction, "cosine = b^2/(1 + b^2), b = 0.5", cosine(bias * bias), one.cosine);
  e.equal(Kind::correction, "cosine after six layers: 6 b^2/(1 + 6 b^2), b = 0.5", cosine(6 * bias * bias), six.cosine);
  e.plot = {"cosine between tokens that began independent, after one layer", "std of the biases", "cosine", false, false};
  Curve measured{"measured", {}, {}, false}, predicted{"b^2/(1 + b^2)", {}, {}};
  for (const double b : {0.0, 0.25, 0.5, 0.75, 1.0}) {
    measured.x.push_back(b);
    measured.y.push_back(look(s, b, 1).cosine.mean);
    predicted.x.push_back(b);
    predicted.y.push_back(cosine(b * b));
  }
  e.plot.curves = {predicted, measured};
  return e;
}

}  // namespace

Claim zero_bias() {
  return {.id = "zero-bias",
          .source = kInitialization,
          .statement = "Bias terms initialized to zero.",
          .tested =
              "With zero biases a layer of unit gain keeps the size of the signal and leaves independent tokens independent, once and six "
              "times over; with biases it does not.",
          .recorded = Verdict::holds,
          .condition = "",
          .correction =
              "Biases of std b add b^2 to the mean square and to the inner product of every two tokens: cosine b^2/(1 + b^2) after one "
              "layer of unit gain, l b^2/(1 + l b^2) after l.",
          .why =
              "A bias is the same vector for every token. It carries no information about them and makes them alike, the more the deeper "
              "the network. At zero it does no harm and is learned "
              "from the first step on: its gradient does not depend on its value.",
          .settings = {draws(300), size("width", 384, 2048, "channels"), {"bias", 0, "std of the biases of the statement", 0, 10}},
          .run = zero_bias_evidence};
}

}  // namespace stepzero::claims
