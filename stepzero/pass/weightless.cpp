#include "stepzero/pass/weightless.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "stepzero/graph/questions.hpp"

namespace stepzero {

namespace {

std::vector<Index> each_once(std::vector<Index> list) {
  std::ranges::sort(list);
  const auto rest = std::ranges::unique(list);
  list.erase(rest.begin(), rest.end());
  return list;
}

// The ids that occur, and the row of padding, which is not drawn like the others.
std::vector<Index> explicit_rows(const Graph& graph, const Batch& batch, const std::vector<bool>& embedded) {
  std::vector<Index> rows = ids_that_occur(batch);
  for (std::size_t k = 0; k < graph.params.size(); ++k) {
    if (embedded[k] && graph.params[k].zero_row >= 0) rows.push_back(graph.params[k].zero_row);
  }
  return each_once(std::move(rows));
}

// Three draws for each use of a tensor: what the way down sees of it, what only the way up sees, and what is new after a step.
Stream stream_of(std::uint64_t seed, const Param& p, const ParamUse& use, const char* part) {
  return make_stream(seed, fmt::format("{}[{},{}]#{}", p.name, use.row0, use.col0, part));
}

}  // namespace

std::vector<Index> ids_that_occur(const Batch& batch) {
  std::vector<Index> ids(batch.ids.begin(), batch.ids.end());
  ids.insert(ids.end(), batch.encoder_ids.begin(), batch.encoder_ids.end());
  return each_once(std::move(ids));
}

std::optional<SeenEmbedding> seen_table(const AnyOp& any, const Batch& batch, std::span<const Index> rows) {
  return std::visit(
      [&]<class T>(const T& op) -> std::optional<SeenEmbedding> {
        if constexpr (requires { T::looks_up; }) {
          SeenEmbedding seen{.width = op.width, .padding = op.padding, .encoder = op.encoder};
          for (const auto id : batch.ids_for(op.encoder)) seen.index.push_back(std::ranges::lower_bound(rows, Index{id}) - rows.begin());
          return seen;
        }
        return {};
      },
      any);
}

const char* Weightless::grade(const Graph& graph, std::size_t node) const {
  if (std::holds_alternative<std::monostate>(nodes[node]) || std::holds_alternative<SeenEmbedding>(nodes[node])) return "measured";
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
  const std::vector<Index> rows = graph.rows(batch);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const bool table = looks_up(node.op);
    const Index lazy = lazy_matrices_of(node.op, rows[n]);
    for (std::size_t i = 0; i < node.params.size(); ++i) {
      const ParamUse& use = node.params[i];
      const auto k = static_cast<std::size_t>(use.param);
      const bool product = std::cmp_less(i, lazy);
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
  const auto lazy = [&](const ParamUse& use, Index in, Index out) {
    const auto k = static_cast<std::size_t>(use.param);
    return WeightlessLinear{.in = in,
                            .out = out,
                            .s = distributions.of(use).std(),
                            .u = distributions.of(use).mean,
                            .seen = stream_of(seed, graph.params[k], use, "seen"),
                            .unseen = stream_of(seed, graph.params[k], use, "unseen"),
                            .fresh = stream_of(seed, graph.params[k], use, "fresh"),
                            .rows = w.params[k].rows};
  };
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.params.empty() || w.params[static_cast<std::size_t>(node.params[0].param)].made) continue;
    if (auto table = seen_table(node.op, batch, ids)) w.nodes[i] = std::move(*table);
    std::vector<WeightlessLinear> matrices;
    for (Index k = 0; k < lazy_matrices_of(node.op, rows[i]); ++k) {
      const ParamShape shape = std::visit([&](const auto& op) { return op.params()[static_cast<std::size_t>(k)]; }, node.op);
      matrices.push_back(lazy(node.params[static_cast<std::size_t>(k)], shape.fan_in, shape.fan_out));
    }
    std::visit(
        [&](const auto& op) {
          if constexpr (requires { stand_in(op, std::move(matrices)); }) {
            if (!matrices.empty()) w.nodes[i] = stand_in(op, std::move(matrices));
          }
        },
        node.op);
  }
  return w;
}

}  // namespace stepzero
