#include <cmath>

#include <fmt/format.h>

#include "stepzero/claims/flow.hpp"
#include "stepzero/claims/list.hpp"

namespace stepzero::claims {

namespace {

Evidence backward_flow_evidence(const Settings& s) {
  Evidence e;
  const Index layers = s.size("layers");
  e.plot = {"size of the gradient at each layer", "layer", "|d_l| / |d_L|", false, true};
  for (const Flow& f : flows(s)) {
    const auto all = signals(s, f);
    const Running r = over(all, [&](const Signal& x) { return std::log(stream_gradient(x, 0) / stream_gradient(x, layers)); });
    e.near(f.scaled ? Kind::statement : Kind::counter, fmt::format("ln |d_0| / |d_L|, {}", f.name), 0, r, std::log(1.35));
    e.plot.curves.push_back(flow_curve(f, all, layers, stream_gradient, layers));
  }
  const Branches normed{.count = 4, .width = 192, .hidden = 1024}, plain{.count = 8, .scale = 0.5, .gain = 0};
  e.equal(Kind::correction, "|d_0|^2 / |d_L|^2 through 4 branches of unit gain behind norms: 1 + 4", normed.backward(),
          measure_backward(s, 4 * s.draws(), normed));
  e.equal(Kind::correction, "the same through 8 branches of gain 1/4 without norms: (1 + 1/4)^8", plain.backward(),
          measure_backward(s, 10 * s.draws(), plain));
  return e;
}

}  // namespace

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
          .settings = flow_settings(),
          .run = backward_flow_evidence};
}

}  // namespace stepzero::claims
