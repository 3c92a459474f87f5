// update: a first update changes the output of every matrix and table by the same share. With W the node's parameters, x its input and
// dW the update by the optimizer at its rate:
//
//     r_i = rms(dW_i x) / rms(W_i x),     r_i = change, or where that is 0 all alike
//
// (WeSaR asks it of ||dW|| / ||W||; this is what the next node sees.) A head that is the token table is left out: most of its gradient is
// that of the rows that were read.
#include <cmath>

#include "stepzero/graph/questions.hpp"
#include "stepzero/solve/objective.hpp"

namespace stepzero::solve {

namespace {

bool is_tied_head(const Graph& graph, const Node& node) {
  return !looks_up(node.op) && !node.params.empty() &&
         graph.params[static_cast<std::size_t>(node.params[0].param)].role == Role::token_embedding;
}

std::vector<Target> targets(const Readout& reading, const Settings& settings) {
  std::vector<Target> out;
  const double change = settings.at("change");
  for (std::size_t i = 0; i < reading.graph().nodes.size(); ++i) {
    const Node& node = reading.graph().nodes[i];
    const auto effect = reading.effect(i);
    if (!effect || is_tied_head(reading.graph(), node) || !(reading.square(i) > 0)) continue;
    Target t{.what = node.name, .wanted = change, .value = *effect / std::sqrt(reading.square(i))};
    if (!(change > 0)) t.level = 100;
    out.push_back(std::move(t));
  }
  for (Target& t : out) t.weight = 1 / std::sqrt(static_cast<double>(out.size()));
  return out;
}

}  // namespace

Objective update_objective() {
  return {.name = "update",
          .summary = "the first update changes the output of every matrix by the same share",
          .formula = "rms(dW_i x) / rms(W_i x) = change (0: the same for all)",
          .settings = {{"change", 0, "the share; 0: any, the same for all"}},
          .free = {"token_embedding", "query", "key", "value", "attention_out", "ffn_in", "ffn_gate", "ffn_out", "head"},
          .steps = true,
          .targets = targets};
}

}  // namespace stepzero::solve
