#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"

namespace stepzero::claims {

namespace {

struct Case {
  const char* name;
  const char* scheme;
  std::vector<std::string> set;
  bool scaled;  // branches small beside the stream
};

std::vector<Case> cases(const Settings& s) {
  const std::string by_depth = fmt::format("residual_scale={}", std::pow(2 * s("layers"), -s("power")));
  return {{"pre-norm, branches times 1/sqrt(2N)", "xavier-normal", {by_depth}, true},
          {"post-norm, branches times 1/sqrt(2N)", "xavier-normal", {"norm_placement=post", by_depth}, true},
          {"DeepNet", "deepnet", {}, true},
          {"pre-norm, Xavier", "xavier-normal", {}, false},
          {"pre-norm, He", "he", {}, false},
          {"no norm, Xavier", "xavier-normal", {"norm=none"}, false}};
}

std::vector<Signal> signals(const Settings& s, const Case& c) {
  Description d{.scheme = c.scheme, .set = {"width=64", "heads=4", fmt::format("layers={}", s.size("layers"))}, .tokens = 12};
  d.set.insert(d.set.end(), c.set.begin(), c.set.end());
  return measured(make_model(d), s, s.draws());
}

Curve curve(const Case& c, const std::vector<Signal>& all, Index layers, double (*of)(const Signal&, Index), Index against) {
  Curve out{c.name, {}, {}};
  for (Index l = 0; l <= layers; ++l) {
    out.x.push_back(static_cast<double>(l));
    out.y.push_back(over(all, [&](const Signal& x) { return of(x, l) / of(x, against); }).mean);
  }
  return out;
}

double norm_of_stream(const Signal& s, Index l) { return std::sqrt(stream(s, l)); }

Evidence run_forward(const Settings& s) {
  Evidence e;
  const Index layers = s.size("layers");
  e.plot = {"size of the stream after each layer", "layer", "|h_l| / |h_0|", false, true};
  for (const Case& c : cases(s)) {
    const auto all = signals(s, c);
    const Running r = over(all, [&](const Signal& x) { return norm_of_stream(x, layers) / norm_of_stream(x, 0); });
    e.equal(c.scaled ? Kind::statement : Kind::counter, fmt::format("|h_L| / |h_0|, {}", c.name), 1, r, 0.25);
    e.plot.curves.push_back(curve(c, all, layers, norm_of_stream, 0));
  }
  e.equal(Kind::statement, "|h_L| / |h_0|, post-norm, Xavier", 1,
          over(signals(s, {"", "xavier-normal", {"norm_placement=post"}, true}),
               [&](const Signal& x) { return norm_of_stream(x, layers) / norm_of_stream(x, 0); }),
          0.25);
  const Branches normed{.count = 16}, plain{.count = 8, .scale = 0.5, .gain = 0};
  e.equal(Kind::correction, "E[x^2] after 16 branches of unit gain behind norms: 1 + 16", normed.forward(),
          measure_flow(s, 4 * s.draws(), normed).forward);
  e.equal(Kind::correction, "E[x^2] after 8 branches of gain 1/4 without norms: (1 + 1/4)^8", plain.forward(),
          measure_flow(s, 6 * s.draws(), plain).forward);
  return e;
}

Evidence run_backward(const Settings& s) {
  Evidence e;
  const Index layers = s.size("layers");
  e.plot = {"size of the gradient at each layer", "layer", "|d_l| / |d_L|", false, true};
  for (const Case& c : cases(s)) {
    const auto all = signals(s, c);
    const Running r = over(all, [&](const Signal& x) { return std::log(stream_gradient(x, 0) / stream_gradient(x, layers)); });
    e.near(c.scaled ? Kind::statement : Kind::counter, fmt::format("ln |d_0| / |d_L|, {}", c.name), 0, r, std::log(1.35));
    e.plot.curves.push_back(curve(c, all, layers, stream_gradient, layers));
  }
  const Branches normed{.count = 4, .width = 192, .hidden = 1024}, plain{.count = 8, .scale = 0.5, .gain = 0};
  e.equal(Kind::correction, "|d_0|^2 / |d_L|^2 through 4 branches of unit gain behind norms: 1 + 4", normed.backward(),
          measure_flow(s, 3 * s.draws(), normed).backward);
  e.equal(Kind::correction, "the same through 8 branches of gain 1/4 without norms: (1 + 1/4)^8", plain.backward(),
          measure_flow(s, 6 * s.draws(), plain).backward);
  return e;
}

std::vector<Setting> settings() {
  return {
      draws(100), size("layers", 12, 64, "layers of the transformers"), {"power", 0.5, "branches are scaled by (2 layers)^-power", -2, 4}};
}

}  // namespace

Claim forward_flow() {
  return {.id = "forward-flow",
          .source = kInitialization,
          .statement = "Forward signal propagation: |h_l|_2 is about |h_0|_2.",
          .tested = "In transformers of 12 layers with embeddings of unit size, |h_L| = |h_0| within a quarter.",
          .recorded = Verdict::holds_if,
          .condition = "the stream itself is normed (post-norm, DeepNet), or branches are scaled down with the depth",
          .correction =
              "Behind norms every branch adds its own variance: E[x^2] = 1 + sum of the branches' variances, so |h_l| grows like sqrt(l); "
              "without norms it is multiplied: "
              "prod (1 + gain).",
          .why =
              "A branch ends in a matrix of zero mean, so what it adds is uncorrelated with the stream and variances add up. Pre-norm "
              "branches have the same size in every layer: linear growth of "
              "the variance, three- to eightfold growth of the norm in twelve layers. Without norms a branch is as large as the stream it "
              "reads, and the growth is exponential.",
          .settings = settings(),
          .run = run_forward};
}

Claim backward_flow() {
  return {.id = "backward-flow",
          .source = kInitialization,
          .statement = "Backward signal propagation: |delta_l|_2 is about |delta_L|_2.",
          .tested =
              "In the same transformers the gradient that arrives at the first layer has the size of that at the last, within a factor of "
              "1.35.",
          .recorded = Verdict::holds_if,
          .condition = "branches are scaled down with the depth (or the stream up, as in DeepNet)",
          .correction =
              "In a stack of normed branches |d_0|^2/|d_L|^2 = prod (1 + v_b/K_b), which telescopes to E[x_L^2]/E[x_0^2]: the gradient "
              "grows towards the input as the stream grows towards "
              "the output; without norms by the same product (1 + gain).",
          .why =
              "Backward, each branch returns its share of the gradient on top of what the stream carries. A pre-norm branch divides by the "
              "size of the stream it reads, so the first branches, which read a small "
              "stream, return the most: gradients at the first layer exceed those at the last by the factor by which the stream grew. "
              "Attention returns gradients to many tokens at once and adds to it.",
          .settings = settings(),
          .run = run_backward};
}

}  // namespace stepzero::claims
