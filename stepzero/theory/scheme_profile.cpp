#include "stepzero/theory/scheme_profile.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "stepzero/models/build.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero {

Expected<Profile> profile(const Architecture& a, const Scheme& scheme) {
  if (a.decoder_layers > 0 || a.image > 0) return fail(fmt::format("family {} is more than one stack of text", a.family));
  constexpr Index tokens = 128;
  const auto batch = make_input(a, {.length = std::min(tokens, a.positions), .sequences = 1, .targets = Targets::next});
  if (!batch) return std::unexpected(batch.error());
  const Signal signal = predict(build_graph(a), a, *batch, scheme);
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
