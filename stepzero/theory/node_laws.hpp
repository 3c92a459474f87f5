#pragma once
// The laws of the parameters that a node uses, as the scheme says: what its moment doors want.
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

using NodeLaws = std::vector<std::vector<Law>>;  // of every node of a graph

inline std::vector<Law> laws_of(const Graph& graph, const Node& node, const Assignment& assignment) {
  std::vector<Law> list;
  for (const ParamUse& use : node.params) {
    const Distribution& d = assignment.of(use);
    const bool table = graph.params[static_cast<std::size_t>(use.param)].role == Role::token_embedding;
    Law law{.mean = d.mean, .variance = d.std() * d.std(), .token_table = table};
    if (d.structure == Distribution::Structure::ramp) law.ramp = d.high;
    if (d.structure == Distribution::Structure::time_steps) law.least = d.low, law.most = d.high;
    list.push_back(law);
  }
  return list;
}

inline NodeLaws laws_of(const Graph& graph, const Assignment& assignment) {
  NodeLaws list;
  for (const Node& node : graph.nodes) list.push_back(laws_of(graph, node, assignment));
  return list;
}

}  // namespace stepzero
