// flat: nothing multiplies from layer to layer. With tau_b^2 the share that branch b adds to the stream's square, g_l the norm of the
// stream's gradient in front of block l, and L blocks:
//
//     prod_{b in l} (1 + tau_b^2) = growth^(1/L),    g_l / g_{l+1} = 1        for every l
//
// Both at once can be had only by small branches: where they cannot, the sum of squared logarithms is least.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

std::vector<Target> targets(const Readout& reading, const Settings& settings) {
  std::vector<Target> out;
  const auto sums = reading.sums();
  for (const Stream& stream : reading.streams()) {
    const std::size_t layers = stream.nodes.size() - 1;
    if (layers == 0) continue;
    const double each = std::pow(settings.at("growth"), 1 / static_cast<double>(layers)), weight = std::sqrt(static_cast<double>(layers));
    const auto name = [&](std::size_t l) { return reading.graph().nodes[stream.nodes[l]].name; };
    for (std::size_t l = 0; l < layers; ++l) {
      double growth = 1;
      for (const Sum& sum : sums) {
        if (sum.stack == stream.stack && sum.layer == static_cast<Index>(l)) growth *= 1 + sum.share;
      }
      out.push_back({.what = fmt::format("growth of {}", name(l)), .wanted = each, .value = growth, .weight = weight});
      const double ratio = reading.gradient(stream.nodes[l]) / reading.gradient(stream.nodes[l + 1]);
      // the last layer's gradient is that of a norm, and of the head
      out.push_back({.what = fmt::format("gradient of {} over {}", name(l), name(l + 1)), .value = ratio, .weight = weight});
    }
  }
  return out;
}

}  // namespace

Objective flat_objective() {
  return {.name = "flat",
          .summary = "neither the stream nor its gradient multiplies over the layers",
          .formula = "prod_b (1 + tau_b^2) = growth^(1/L) and g_l / g_(l+1) = 1 in every layer",
          .settings = {{"growth", 2, "of the stream's square over all layers"}},
          .free = {"value", "attention_out", "ffn_in", "ffn_gate", "ffn_out", "token_embedding", "position_embedding"},
          .targets = targets};
}

}  // namespace stepzero::solve
