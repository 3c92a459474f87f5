#pragma once
// What schemes change in the forward pass, as a transformation of any graph: places of nodes tell the branches, roles of tensors the
// matrices.
#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

// Whether a field of the description is one of these, or what schemes that change them need to know (base_width, base_layers).
bool is_graph_change(std::string_view field);

// The graph with everything changed in which `after` differs from `before`, its description: norm = none, norm_placement = post,
// sub_norm, norm_scale_by_layer, branch_gain, scales of skips, branches, embeddings, scores and logits, unit_linear, position =
// sinusoidal. An error says which change does not fit, and why.
Expected<Graph> change_graph(const Graph& graph, const Architecture& before, const Architecture& after);

}  // namespace stepzero
