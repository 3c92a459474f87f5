#pragma once
// What a node's moment doors want: the laws of the parameters that it uses, as the scheme says, and the moments of its inputs.
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

inline std::vector<Law> laws_of(const Graph& graph, const Node& node, const Assignment& assignment) {
  std::vector<Law> list;
  for (const ParamUse& use : node.params) {
    const Distribution& d = assignment.of(use);
    const bool table = graph.params[static_cast<std::size_t>(use.param)].role == Role::token_embedding;
    list.push_back({d.mean, d.std() * d.std(), table});
  }
  return list;
}

inline std::vector<const Moment*> inputs_of(const Node& node, const std::vector<Moment>& moments) {
  std::vector<const Moment*> list;
  for (const int wire : node.inputs) list.push_back(&moments[static_cast<std::size_t>(wire)]);
  return list;
}

}  // namespace stepzero
