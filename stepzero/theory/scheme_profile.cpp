#include "stepzero/theory/scheme_profile.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

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
  const Signal signal = predict(build_graph(a), a, *batch, scheme, {.order = Order::fluctuations});  // no draw moves what goes down
  std::map<std::pair<Index, std::string>, const NodeSignal*> nodes;
  for (const NodeSignal& n : signal.nodes) {
    const Place place = place_of(n.name);
    nodes[{place.layer, place.part}] = &n;
  }
  Profile profile;
  for (Index l = 0; l < a.layers; ++l) {
    for (const char* branch : {"attn.out", "ffn.out"})
      profile.branch_variances.push_back(nodes.at({l, branch})->forward.variance.predicted.value_or(0));
    const auto size = [&](const char* part) { return nodes.at({l, part})->forward.second_moment.predicted.value_or(0); };
    profile.mixing.push_back(size("attn.v") > 0 ? size("attn.mix") / size("attn.v") : 1);
  }
  return profile;
}

}  // namespace stepzero
