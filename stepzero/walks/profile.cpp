#include "stepzero/walks/profile.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/walks/predict.hpp"

namespace stepzero {

Expected<Profile> profile(const Architecture& a, const Scheme& scheme) {
  const auto graph = build_running_graph(a);
  if (!graph) return std::unexpected(graph.error());
  constexpr Index tokens = 128;
  const auto batch =
      make_batch({.source = "zipf", .length = std::min(tokens, a.positions), .sequences = 1, .vocab = a.vocab, .positions = a.positions});
  STEPZERO_CHECK(batch.has_value());
  const Signal signal = predict(*graph, a, *batch, scheme);
  std::map<std::string, const NodeSignal*> nodes;
  for (const NodeSignal& n : signal.nodes) nodes[n.name] = &n;
  Profile profile;
  for (Index l = 0; l < a.layers; ++l) {
    for (const char* branch : {"attn", "ffn"})
      profile.branch_variances.push_back(nodes.at(fmt::format("blocks.{}.{}.out", l, branch))->forward.variance.predicted.value_or(0));
    const auto size = [&](const char* node) {
      return nodes.at(fmt::format("blocks.{}.attn.{}", l, node))->forward.second_moment.predicted.value_or(0);
    };
    profile.mixing.push_back(size("v") > 0 ? size("mix") / size("v") : 1);
  }
  return profile;
}

}  // namespace stepzero
