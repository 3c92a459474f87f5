#pragma once
// Which nodes of a graph can run without their weights, and what stands in for them (ops/weightless.hpp). The graph is
// not changed: a pass that is given a Weightless opens the doors of the stand-ins instead of those of the nodes' own ops.
#include <variant>

#include "stepzero/graph/graph.hpp"
#include "stepzero/ops/experts_weightless.hpp"
#include "stepzero/ops/lora_weightless.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct Weightless {
  struct Parameter {
    bool made = true;              // false: only `rows` of it exist, one after the other
    std::vector<Index> rows = {};  // ascending
  };
  std::vector<std::variant<std::monostate, WeightlessLinear, WeightlessLora, SeenEmbedding, WeightlessExperts>>
      nodes;  // monostate: the node's own op
  std::vector<Parameter> params;
  Assignment distributions;

  // "measured" where the stand-in has the law of the real node, "approximate" where only up to O(1/n).
  [[nodiscard]] const char* grade(const Graph& graph, std::size_t node) const;
};

// Ascending, each once.
std::vector<Index> ids_that_occur(const Batch& batch);

// The stand-in of an op that looks rows of a table up, where only `rows` of it are there, the ids that occur among them. Empty: it
// does not look up.
std::optional<SeenEmbedding> seen_table(const AnyOp& op, const Batch& batch, std::span<const Index> rows);

// A matrix stays real if it has fewer inputs than there are tokens (it is then the smaller of the two), if an op without
// a stand-in uses it, or if two products use the same block of it: what one saw, the other would have to know.
Weightless make_weightless(const Graph& graph, const Batch& batch, const Assignment& distributions, std::uint64_t seed);

}  // namespace stepzero
