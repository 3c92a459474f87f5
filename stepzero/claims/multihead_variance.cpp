#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/softmax.hpp"

namespace stepzero::claims {

namespace {

struct Sums {
  Running output, head, channel;  // over all channels; over those of one head; one channel
};

// Tokens of unit variance through q, k, v, attention and the output matrix, entries of variance 1/d; `query` is a factor on W_q.
Sums sums(const Settings& s, Index tokens, bool same, double query) {
  const Index d = s.size("width"), heads = s.size("heads"), head_dim = d / heads;
  const double unit = 1 / std::sqrt(static_cast<double>(d)), n = static_cast<double>(d);
  Lab lab(tokens, 8);
  const int x = lab.source(d, Distribution::normal(1));
  const int q = lab.linear(x, d, Distribution::normal(query * unit));
  const int k = lab.linear(x, d, Distribution::normal(unit));
  const int v = lab.linear(x, d, Distribution::normal(unit));
  const int mix = lab.add(Attention{.heads = heads,
                                    .kv_heads = heads,
                                    .key_dim = head_dim,
                                    .value_dim = head_dim,
                                    .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
                                    .causal = false},
                          {q, k, v});
  const int y = lab.linear(mix, d, Distribution::normal(unit * s("output")));
  if (same) lab.same_tokens();
  const auto r = lab.run(s, s.draws(), [&](const Shot& shot) {
    const double head = moments(shot.output(mix).columns(0, head_dim)).second_moment();
    return std::vector{n * shot.square(y), static_cast<double>(head_dim) * head, shot.square(y)};
  });
  return {r[0], r[1], r[2]};
}

Evidence multihead_variance_evidence(const Settings& s) {
  Evidence e;
  const double d = static_cast<double>(s.size("width")), h = static_cast<double>(s.size("heads"));
  const Sums one = sums(s, 1, false, 1), apart = sums(s, 32, false, 1);
  e.equal(Kind::statement, "sum over channels of Var(output), one token", d, one.output, 0.1);
  e.equal(Kind::statement, "sum over a head's channels of its variance, one token", d / h, one.head, 0.1);
  e.equal(Kind::counter, "Var of one channel of the output, one token", d, one.channel, 0.1);
  e.equal(Kind::counter, "sum over channels of Var(output), 32 different tokens", d, apart.output, 0.1);
  e.equal(Kind::counter, "sum over a head's channels, 32 different tokens", d / h, apart.head, 0.1);
  constexpr double query = 0.1;
  const double v = query * query;
  const SoftmaxOfNormals theory{v, 32, d / h};
  // k and v come from one x: tokens that happen to be alike look at each other, which adds v/d
  const double left = theory.sum_squares() + v / d;
  const Sums mild = sums(s, 32, false, query);
  e.equal(Kind::correction, "d e^v / T, T = 32 different tokens, score variance 0.01", d * left, mild.output, 0.1);
  e.equal(Kind::correction, "d e^v / (h T) of a head", d / h * left, mild.head, 0.1);
  e.plot = {"what attention leaves of the variance", "different tokens T", "sum over channels / d", true, true};
  Curve measured{"measured, score variance 0.01", {}, {}, false}, predicted{"1/T", {}, {}};
  for (const Index tokens : {1, 4, 32}) {
    const double t = static_cast<double>(tokens);
    measured.x.push_back(t);
    predicted.x.push_back(t);
    predicted.y.push_back(1 / t);
    measured.y.push_back((tokens == 1 ? one.output.mean : tokens == 32 ? mild.output.mean : sums(s, tokens, false, query).output.mean) / d);
  }
  e.plot.curves = {predicted, measured};
  return e;
}

}  // namespace

Claim multihead_variance() {
  return {.id = "multihead-variance",
          .source = kInitialization,
          .statement = "Var(MultiHead(Q,K,V)) = d_model, and Var(head_i) = d_model/h.",
          .tested =
              "Tokens of unit variance, matrices of variance 1/d: the variance of the output, summed over channels, is d_model, and that "
              "of one head is d_model/h.",
          .recorded = Verdict::holds_if,
          .condition = "variance means the sum over channels, and there is nothing to average: one token, or all tokens alike",
          .correction =
              "With T different tokens the sum is d_model e^v / T (and d_model e^v / (h T) for a head), v the variance of the scores: an "
              "attention averages.",
          .why =
              "Each channel of a product with unit gain has variance 1, so d channels have d; one channel has 1, not d. But the values are "
              "averaged over the tokens seen, and "
              "what is independent in them averages out: this is the loss of variance, and the gain of similarity between tokens, by which "
              "attention differs from a linear layer.",
          .settings = {draws(200),
                       size("width", 256, 2048, "d_model"),
                       size("heads", 4, 64, "heads; they divide the width"),
                       {"output", 1, "std of the output matrix, in units of 1/sqrt(d)"}},
          .run = multihead_variance_evidence};
}

}  // namespace stepzero::claims
