#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"

namespace stepzero::claims {

namespace {

constexpr Index width = 96, heads = 4, layers = 4;

// (share of the identity, sign) of the query and key matrices, and of the value and output matrices.
std::vector<Signal> signals(const Settings& s, double scores, double values) {
  Model m = make_model({.scheme = "lecun",
                        .set = {fmt::format("width={}", width), fmt::format("heads={}", heads), fmt::format("layers={}", layers)},
                        .tokens = 16});
  const auto law = [&](double share) {
    const double left = std::sqrt((1 - share * share) / static_cast<double>(width));
    return share == 0 ? Distribution::normal(left) : Distribution::diagonal_and_noise(share, left, width, width);
  };
  m.set(Role::query, law(scores));
  m.set(Role::key, law(scores));
  m.set(Role::value, law(std::abs(values)));
  m.set(Role::attention_out, law(values));
  return measured(m, s, s.draws());
}

Running difference(const std::vector<Signal>& a, const std::vector<Signal>& b, double (*of)(const Signal&)) {
  Running r;
  for (std::size_t i = 0; i < a.size(); ++i) r.add(of(a[i]) - of(b[i]));
  return r;
}

double last_cosine(const Signal& s) { return stream_cosine(s, layers); }
double first_squares(const Signal& s) { return value_of(s.attention[0].sum_squares); }
double log_gradient(const Signal& s) { return std::log(stream_gradient(s, 0) / stream_gradient(s, layers)); }

// T times the mean score of an attention with W = a I + Z in query and key: each token's score with itself.
Running own_score(const Settings& s, Index tokens, double a) {
  Lab lab(tokens, 16);
  const int x = lab.source(width, Distribution::normal(1));
  const auto near_identity = [&] {
    const int noise = lab.linear(x, width, Distribution::normal(std::sqrt((1 - a * a) / static_cast<double>(width))));
    return lab.add(Residual{width, a, 1}, {x, noise});
  };
  const int q = near_identity(), k = near_identity(), v = lab.source(heads, Distribution::normal(1));
  const double scale = 1 / std::sqrt(static_cast<double>(width) / heads);
  const int mix = lab.add(
      Attention{.heads = heads, .kv_heads = heads, .key_dim = width / heads, .value_dim = 1, .scale = scale, .causal = false}, {q, k, v});
  return lab.run(s, 3 * s.draws(),
                 [&](const Shot& shot) { return std::vector{static_cast<double>(tokens) * shot.attention.at(mix).mean_score}; })[0];
}

Evidence identity_attention_evidence(const Settings& s) {
  Evidence e;
  const double share = s("share"), half = std::sqrt(0.5);
  const auto random = signals(s, 0, 0), looks = signals(s, share, 0), passes = signals(s, 0, half), opposite = signals(s, half, -half);
  e.at_most(Kind::statement, "cosine between tokens after 4 layers, W_q and W_k = (I + Z)/sqrt(2), less that of random ones", 0,
            difference(looks, random, last_cosine));
  e.at_least(Kind::statement, "sum of squared weights in the first layer, less that of random ones", 0.02,
             difference(looks, random, first_squares));
  e.near(Kind::statement, "ln |d_0|/|d_L|, less that of random ones", 0, difference(looks, random, log_gradient), 0.15);
  e.at_most(Kind::counter, "cosine between tokens, W_v and W_o = (I + Z)/sqrt(2), less that of random ones", 0,
            difference(passes, random, last_cosine));
  e.at_most(Kind::correction, "cosine, W_q and W_k near I, W_v W_o near -I (mimetic), less that of random ones", 0,
            difference(opposite, random, last_cosine));
  e.equal(Kind::correction, "score of a token with itself, W = a I + Z: a^2 sqrt(d_k), a^2 = 1/2",
          half * half * std::sqrt(static_cast<double>(width) / heads), own_score(s, 8, half));
  e.plot = {"tokens grow alike", "layer", "cosine", false, false};
  for (auto [name, all] : {std::pair("random", &random), std::pair("W_q, W_k near I", &looks), std::pair("W_v, W_o near I", &passes),
                           std::pair("W_q, W_k near I, W_v W_o near -I", &opposite)}) {
    Curve c{name, {}, {}};
    for (Index l = 0; l <= layers; ++l) {
      c.x.push_back(static_cast<double>(l));
      c.y.push_back(over(*all, [&](const Signal& x) { return stream_cosine(x, l); }).mean);
    }
    e.plot.curves.push_back(c);
  }
  return e;
}

}  // namespace

Claim identity_attention() {
  return {.id = "identity-attention",
          .source = kInitialization,
          .statement = "Initialize attention weights closer to identity matrix.",
          .tested =
              "Against random matrices of the same size, W_q and W_k near the identity keep tokens apart (a lower cosine after 4 layers), "
              "make a token look at itself, and leave the gradient's size as it is.",
          .recorded = Verdict::holds_if,
          .condition = "it is the query and key matrices that are near the identity; for value and output it is the contrary",
          .correction =
              "With W_q and W_k = a I + Z a token's score with itself is a^2 sqrt(d_k) on average, that with others 0. Value and output "
              "near the identity add the mean of the tokens to every token; their product near "
              "minus the identity (the mimetic scheme) takes it away.",
          .why =
              "Random scores do not know which token is which, and an attention that averages makes tokens alike. Near-identity queries "
              "and keys find their own token, so less is averaged. Near-identity values and outputs "
              "pass the average on undistorted, in line with what all tokens share, layer after layer, and the cosine rises faster than "
              "with random matrices, which turn each layer's average another way.",
          .settings = {draws(80), {"share", 0.7071067811865476, "a in W = a I + Z, of W_q and W_k", -1, 1}},
          .run = identity_attention_evidence};
}

}  // namespace stepzero::claims
