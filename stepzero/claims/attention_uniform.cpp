#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/softmax.hpp"

namespace stepzero::claims {

namespace {

constexpr Index head_dim = 64;

struct Seen {
  Running squares, entropy_lost, effective;  // n sum A^2; ln n - entropy; 1 / (n sum A^2)
};

Seen look(const Settings& s, double v) {
  const Index tokens = s.size("tokens");
  const double n = static_cast<double>(tokens);
  Lab lab(tokens);
  const int mix = add_attention(lab, v, 1, head_dim, 1);
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    const AttentionSummary& a = shot.attention.at(mix);
    return std::vector{n * a.sum_squares, std::log(n) - a.entropy, 1 / (n * a.sum_squares)};
  });
  return {r[0], r[1], r[2]};
}

Evidence attention_uniform_evidence(const Settings& s) {
  Evidence e;
  const double n = static_cast<double>(s.size("tokens")), small = s("score_variance");
  const Seen near = look(s, small);
  e.at_least(Kind::statement, fmt::format("effective tokens 1/sum A^2 over n, score variance {}", small), 0.9, near.effective);
  e.plot = {"how many tokens an attention looks at", "variance of the scores", "effective share of n", true, false};
  Curve measured{"measured", {}, {}, false}, predicted{"e^-v", {}, {}};
  for (const double v : {0.02, 0.1, 0.25, 0.5, 1.0, 2.0}) {
    const Seen seen = look(s, v);
    measured.x.push_back(v);
    measured.y.push_back(seen.effective.mean);
    predicted.x.push_back(v);
    predicted.y.push_back(std::exp(-v));
    const SoftmaxOfNormals theory{v, n, head_dim};
    if (v == 1) e.at_least(Kind::counter, "the same, unit q and k divided by sqrt(d_k): score variance 1", 0.9, seen.effective);
    if (v != 0.5 && v != 1.0) continue;
    e.equal(Kind::correction, fmt::format("n sum A^2 = e^v, score variance {}", v), n * theory.sum_squares(), seen.squares);
    e.equal(Kind::correction, fmt::format("ln n - entropy = v/2, score variance {}", v), theory.entropy_lost(), seen.entropy_lost);
  }
  e.at_least(Kind::counter, "the same, not divided: score variance 16", 0.9, look(s, 16).effective);
  e.plot.curves = {predicted, measured};
  return e;
}

}  // namespace

Claim attention_uniform() {
  return {.id = "attention-uniform",
          .source = kInitialization,
          .statement = "Initial attention weights are approximately uniform.",
          .tested = "An attention over n tokens looks at no fewer than 0.9 n of them: 1/sum_j A_j^2, averaged over queries.",
          .recorded = Verdict::holds_if,
          .condition = "the variance v of the scores is small: v < 0.1",
          .correction =
              "With scores of variance v the attention looks at n e^-v tokens and its entropy is ln n - v/2 (terms of order 1/n and 1/d_k "
              "are in the predictions).",
          .why =
              "A softmax of normal scores has log-normal weights: sum A^2 = e^(2v)/(n e^v). The document's own setting, unit q and k "
              "divided by sqrt(d_k), has "
              "v = 1, and there an attention looks at a third of its tokens, which is not uniform; without the division it looks at one or "
              "two. In real models with "
              "std 0.02 the scores are small and the statement is good.",
          .settings = {draws(100),
                       size("tokens", 512, 4096, "tokens that see each other"),
                       {"score_variance", 0.05, "variance of the scores of the statement", 0.001, 20}},
          .run = attention_uniform_evidence};
}

}  // namespace stepzero::claims
