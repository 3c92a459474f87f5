#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/list.hpp"
#include "stepzero/claims/training.hpp"

namespace stepzero::claims {

namespace {

struct Case {
  const char* name;
  const char* scheme;
  std::vector<std::string> set;
};

struct Size {
  double width = 64, layers = 4, tokens = 16;
};

// ln |grad L| of each draw.
std::vector<double> norms(const Settings& s, const Case& c, Size size) {
  Description d{.scheme = c.scheme,
                .set = {fmt::format("width={}", size.width), "heads=4", fmt::format("layers={}", size.layers)},
                .tokens = static_cast<Index>(size.tokens)};
  d.set.insert(d.set.end(), c.set.begin(), c.set.end());
  std::vector<double> out;
  for (const Signal& x : measured(make_model(d), s, s.draws())) out.push_back(std::log(value_of(x.gradient_norm)));
  return out;
}

Running slope(const std::vector<double>& low, const std::vector<double>& high, double ratio) {
  Running r;
  for (std::size_t i = 0; i < low.size(); ++i) r.add((high[i] - low[i]) / std::log(ratio));
  return r;
}

// How |grad L| goes with the width, the number of layers and the number of tokens that the loss averages over.
Running with_width(const Settings& s, const Case& c) { return slope(norms(s, c, {.width = 32}), norms(s, c, {.width = 128}), 4); }
Running with_layers(const Settings& s, const Case& c) { return slope(norms(s, c, {.layers = 2}), norms(s, c, {.layers = 16}), 8); }
Running with_tokens(const Settings& s, const Case& c) { return slope(norms(s, c, {.tokens = 4}), norms(s, c, {.tokens = 64}), 16); }

// Six layers in training, at a rate that is low enough for no single batch to make a spike.
Course training(const Settings& s) {
  const Description d{.scheme = "deepnet", .set = {"width=32", "heads=2", "position=sinusoidal", "layers=6"}};
  return train_runs(d, {.vocab = 8, .length = 8, .sequences = 6}, {.steps = 60, .rate = 1.5e-3}, s,
                    static_cast<int>(s.size("runs")));
}

Evidence gradient_bound_evidence(const Settings& s) {
  Evidence e;
  const double wide = s("width_power"), deep = -s("power");
  const Case deepnet{"DeepNet", "deepnet", {}};
  e.at_most(Kind::statement, "exponent of d_model, DeepNet", wide + 0.05, with_width(s, deepnet));
  e.at_most(Kind::statement, "exponent of N, DeepNet, N = tokens that the loss averages over", deep + 0.05, with_tokens(s, deepnet));
  const Course course = training(s);
  e.at_most(Kind::statement, "largest |grad L| in 60 steps of training over the first, DeepNet", 4, course.largest);
  e.at_most(Kind::counter, "exponent of N, DeepNet, N = layers", deep + 0.05, with_layers(s, deepnet));
  for (const Case& c : {Case{"pre-norm Xavier", "xavier-normal", {}}, Case{"post-norm Xavier", "xavier-normal", {"norm_placement=post"}}}) {
    e.at_most(Kind::counter, fmt::format("exponent of d_model, {}", c.name), wide + 0.05, with_width(s, c));
    e.at_most(Kind::counter, fmt::format("exponent of N, {}, N = layers", c.name), deep + 0.05, with_layers(s, c));
  }
  e.plot = {"gradient norm in training, DeepNet, 6 layers", "step", "|grad L|", false, false};
  Curve c{"mean over runs", {}, course.gradient};
  for (std::size_t i = 0; i < course.gradient.size(); ++i) c.x.push_back(static_cast<double>(i));
  e.plot.curves = {c};
  return e;
}

}  // namespace

Claim gradient_bound() {
  return {
      .id = "gradient-bound",
      .source = kInitialization,
      .statement = "For well-initialized transformers |grad L|_2 <= C sqrt(d_model / N), C a constant of the problem.",
      .tested =
          "If there is such a C, then |grad L| grows with d_model no faster than its square root and falls with N at least as 1/sqrt(N): "
          "exponents fitted over widths 32 to 128, 2 to 16 layers, 4 to 64 tokens.",
      .recorded = Verdict::holds_if,
      .condition =
          "N is the number of tokens that the loss averages over (not of layers), and the scheme is aware of depth and width as DeepNet is",
      .correction =
          "The norm falls as 1/sqrt(tokens) in every scheme; with the number of layers it is constant at best (DeepNet) and grows under "
          "Xavier, and under Xavier it grows faster than sqrt(d_model).",
      .why =
          "The loss is a mean over tokens whose gradients at step zero are nearly orthogonal, hence 1/sqrt(tokens); the head's gradient, "
          "an outer product with a vector of norm sqrt(d), gives sqrt(d). No scheme makes the whole gradient "
          "fall with the number of layers, since the embedding and the head have theirs at any depth. What a scheme can do is to keep the "
          "blocks from adding to it.",
      .settings = {draws(40),
                   size("runs", 10, 100, "trainings from different draws"),
                   {"power", 0.5, "|grad L| <= C d^width_power N^-power", -4, 4},
                   {"width_power", 0.5, "likewise", -4, 4}},
      .run = gradient_bound_evidence};
}

}  // namespace stepzero::claims
