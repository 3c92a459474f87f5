#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/flow.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

double norm_of_stream(const Signal& s, Index l) { return std::sqrt(stream(s, l)); }

Evidence forward_flow_evidence(const Settings& s) {
  Evidence e;
  const Index layers = s.size("layers");
  e.plot = {"size of the stream after each layer", "layer", "|h_l| / |h_0|", false, true};
  for (const Flow& f : flows(s)) {
    const auto all = signals(s, f);
    const Running r = over(all, [&](const Signal& x) { return norm_of_stream(x, layers) / norm_of_stream(x, 0); });
    e.equal(f.scaled ? Kind::statement : Kind::counter, fmt::format("|h_L| / |h_0|, {}", f.name), 1, r, 0.25);
    e.plot.curves.push_back(flow_curve(f, all, layers, norm_of_stream, 0));
  }
  e.equal(Kind::statement, "|h_L| / |h_0|, post-norm, Xavier", 1,
          over(signals(s, {"", "xavier-normal", {"norm_placement=post"}, true}),
               [&](const Signal& x) { return norm_of_stream(x, layers) / norm_of_stream(x, 0); }),
          0.25);
  const Branches normed{.count = 16}, plain{.count = 8, .scale = 0.5, .gain = 0};
  e.equal(Kind::correction, "E[x^2] after 16 branches of unit gain behind norms: 1 + 16", normed.forward(),
          measure_forward(s, 10 * s.draws(), normed));
  e.equal(Kind::correction, "E[x^2] after 8 branches of gain 1/4 without norms: (1 + 1/4)^8", plain.forward(),
          measure_forward(s, 15 * s.draws(), plain));
  return e;
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
          .settings = flow_settings(),
          .run = forward_flow_evidence};
}

}  // namespace stepzero::claims
