#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/softmax.hpp"

namespace stepzero::claims {

namespace {

constexpr Index head_dim = 64;

struct Seen {
  Running output, weights;  // n E[y^2]; n^2 Var(A)
};

Seen look(const Settings& s, Index tokens, double v, Index value_dim) {
  const double n = static_cast<double>(tokens);
  Lab lab(tokens);
  const int mix = add_attention(lab, v, 2, head_dim, value_dim);
  const auto r = lab.run(s, s.draws(),
                         [&](const Shot& shot) { return std::vector{n * shot.square(mix), n * shot.attention.at(mix).sum_squares - 1}; });
  return {r[0], r[1]};
}

Evidence softmax_variance_evidence(const Settings& s) {
  Evidence e;
  const double small = s("score_variance"), power = s("power");
  const Index values = 384;
  e.plot = {"variance of an attention's output, values of variance 1", "sequence length n", "E[y^2]", true, true};
  Curve measured{"measured, score variance " + fmt::format("{}", small), {}, {}, false}, predicted{"1/n", {}, {}};
  for (const Index tokens : {32, 128, 256}) {
    const double n = static_cast<double>(tokens);
    const Running out = look(s, tokens, small, values).output;
    e.equal(Kind::statement, fmt::format("n Var(output), score variance {}, n = {}", small, tokens), std::pow(n, 1 - power), out, 0.06);
    measured.x.push_back(n);
    measured.y.push_back(out.mean / n);
    predicted.x.push_back(n);
    predicted.y.push_back(1 / n);
  }
  e.plot.curves = {predicted, measured};
  const Seen one = look(s, 256, 1, values), half = look(s, 256, 0.5, values);
  const Running& w = one.weights;
  const double n = 256;
  e.equal(Kind::counter, "n Var(weights), score variance 1", 1, {w.count, w.mean / n, w.deviations / (n * n)});
  e.equal(Kind::counter, "n Var(output), score variance 1", 1, one.output);
  const SoftmaxOfNormals theory{0.5, n, head_dim};
  e.equal(Kind::correction, "n^2 Var(weights) = e^v - 1, score variance 0.5", n * theory.sum_squares() - 1, half.weights);
  e.equal(Kind::correction, "n Var(output) = e^v, score variance 0.5", n * theory.sum_squares(), half.output);
  return e;
}

}  // namespace

Claim softmax_variance() {
  return {.id = "softmax-variance",
          .source = kInitialization,
          .statement = "Softmax output variance is about 1/sequence_length.",
          .tested =
              "With values of variance 1, the attention's output has variance 1/n for n = 32, 128, 256; and, read literally, so have the "
              "weights.",
          .recorded = Verdict::holds_if,
          .condition = "it is the output A V that is meant, with independent values of variance 1, and the variance of the scores is small",
          .correction = "Var(A_j) = (e^v - 1)/n^2 for the weights, and e^v/n for the output, with v the variance of the scores.",
          .why =
              "Averaging n independent values leaves sum A^2 of their variance, which is 1/n for uniform weights and e^v/n for scores of "
              "variance v. The weights themselves lie "
              "around 1/n and their variance is of order 1/n^2: n times smaller than the statement says if it is read as one about the "
              "softmax.",
          .settings = {draws(150),
                       {"score_variance", 0.01, "variance of the scores of the statement", 0.001, 20},
                       {"power", 1, "Var = n^-power"}},
          .run = softmax_variance_evidence};
}

}  // namespace stepzero::claims
