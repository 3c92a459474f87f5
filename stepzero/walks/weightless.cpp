#include "stepzero/walks/weightless.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace stepzero {

namespace {

// A linear node whose matrix has at least as many inputs as there are tokens.
const Linear* can_be_lazy(const Node& node, const Batch& batch) {
  const auto* linear = std::get_if<Linear>(&node.op);
  return linear != nullptr && linear->in >= batch.tokens() ? linear : nullptr;
}

// The ids that occur, and the row of padding, which is not drawn like the others.
std::vector<Index> explicit_rows(const Graph& graph, const Batch& batch, const std::vector<bool>& embedded) {
  std::vector<Index> ids(batch.ids.begin(), batch.ids.end());
  for (std::size_t k = 0; k < graph.params.size(); ++k) {
    if (embedded[k] && graph.params[k].zero_row >= 0) ids.push_back(graph.params[k].zero_row);
  }
  std::ranges::sort(ids);
  const auto rest = std::ranges::unique(ids);
  ids.erase(rest.begin(), rest.end());
  return ids;
}

// Two draws for each use of a tensor: what the way down sees of it, and what only the way up sees.
Stream stream_of(std::uint64_t seed, const Param& p, const ParamUse& use, const char* part) {
  return make_stream(seed, fmt::format("{}[{},{}]#{}", p.name, use.row0, use.col0, part));
}

}  // namespace

const char* Weightless::grade(const Graph& graph, std::size_t node) const {
  if (!std::holds_alternative<WeightlessLinear>(nodes[node])) return "measured";
  const auto kind = distributions.of(graph.nodes[node].params[0]).kind;
  return kind == Distribution::Kind::normal || kind == Distribution::Kind::constant ? "measured" : "approximate";
}

Weightless make_weightless(const Graph& graph, const Batch& batch, const Assignment& distributions, std::uint64_t seed) {
  Weightless w;
  w.nodes.resize(graph.nodes.size());
  std::vector<bool> embedded(graph.params.size(), false);
  std::vector<std::vector<ParamUse>> products(graph.params.size());
  w.distributions = distributions;
  w.params.resize(graph.params.size(), {.made = false});
  for (const Node& node : graph.nodes) {
    const bool table = std::holds_alternative<TokenEmbedding>(node.op);
    for (std::size_t i = 0; i < node.params.size(); ++i) {
      const ParamUse& use = node.params[i];
      const auto k = static_cast<std::size_t>(use.param);
      const auto* linear = can_be_lazy(node, batch);
      const bool product = linear != nullptr && std::cmp_less(i, linear->pieces);
      if (table) embedded[k] = true;
      const bool again = product && std::ranges::find(products[k], use) != products[k].end();
      if (!(table || product) || again) w.params[k].made = true;
      if (product) products[k].push_back(use);
    }
  }
  const std::vector<Index> ids = explicit_rows(graph, batch, embedded);
  for (std::size_t k = 0; k < graph.params.size(); ++k) {
    if (!w.params[k].made && embedded[k]) w.params[k].rows = ids;
  }
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.params.empty()) continue;
    const ParamUse& use = node.params[0];
    const auto& tensor = w.params[static_cast<std::size_t>(use.param)];
    const Param& param = graph.params[static_cast<std::size_t>(use.param)];
    if (tensor.made) continue;
    if (const auto* table = std::get_if<TokenEmbedding>(&node.op)) {
      SeenEmbedding stand_in{.width = table->width, .padding = table->padding};
      for (const auto id : batch.ids) stand_in.index.push_back(std::ranges::lower_bound(ids, Index{id}) - ids.begin());
      w.nodes[i] = std::move(stand_in);
    } else if (const auto* linear = std::get_if<Linear>(&node.op)) {
      w.nodes[i] = WeightlessLinear{.in = linear->in,
                                    .out = linear->out,
                                    .bias = linear->bias,
                                    .pieces = linear->pieces,
                                    .s = distributions.of(use).std(),
                                    .u = distributions.of(use).mean,
                                    .seen = stream_of(seed, param, use, "seen"),
                                    .unseen = stream_of(seed, param, use, "unseen"),
                                    .rows = tensor.rows};
    }
  }
  return w;
}

}  // namespace stepzero
