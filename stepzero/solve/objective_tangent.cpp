// tangent: how far plain gradient descent on the blocks moves the last stream, whatever the depth. A step of SGD at rate 1 moves x_L
// along its gradient d by
//
//     rho = sum over the blocks' tensors of ||dLoss/dtheta||^2 / (||dLoss/dx_L||^2 n E[x_L^2])
//
// times n E[x_L^2], n the width: the tangent kernel of the blocks, seen in the direction of the gradient. That it should not grow with the
// depth is what DeepNet (Wang et al. 2022), T-Fixup and Fixup are derived from.
#include <cmath>

#include <fmt/format.h>

#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

std::vector<Target> targets(const Readout& reading, const Settings& settings) {
  const auto streams = reading.streams();
  if (streams.empty()) return {};
  const Stream& stream = streams.back();
  const std::size_t last = stream.nodes.back();
  double squares = 0;
  for (const ParameterSignal& p : reading.signal().parameters) {
    const bool matrix = p.role != Role::gain && p.role != Role::bias && p.role != Role::branch_gain;
    if (p.layer < 0 || p.frozen || !matrix) continue;
    const double norm = reading.of(p.gradient_norm);
    squares += norm * norm;
  }
  const double d = reading.gradient(last), n = static_cast<double>(channels_of(reading.graph().nodes[last].op));
  return {{.what = fmt::format("tangent kernel of the blocks at {}", reading.graph().nodes[last].name),
           .wanted = settings.at("rho"),
           .value = squares / (d * d * n * reading.square(last))}};
}

}  // namespace

Objective tangent_objective() {
  return {.name = "tangent",
          .summary = "gradient descent on the blocks moves the last stream by the same share, whatever the depth",
          .formula = "sum over blocks ||dLoss/dtheta||^2 / (||dLoss/dx_L||^2 n E[x_L^2]) = rho",
          .settings = {{"rho", 1, "the share at rate 1"}},
          .free = {"value+attention_out+ffn_in+ffn_gate+ffn_out"},
          .targets = targets};
}

}  // namespace stepzero::solve
