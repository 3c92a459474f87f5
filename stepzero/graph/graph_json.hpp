#pragma once
// The canonical graph, stepzero.graph/1: every tensor and every node with all of its fields, as JSON. What a file of the language,
// the same file under Python and a family's config.json mean is the same exactly when these are.
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

inline constexpr const char* graph_schema = "stepzero.graph/1";

// Tensors and nodes; what it is called and how far it reaches is added by those who know.
nlohmann::ordered_json graph_json(const Graph& graph);

// The op of a kind, from an object that has its fields and no others.
Expected<AnyOp> make_op(const std::string& kind, const nlohmann::json& fields);

// From strangers: everything is checked.
Expected<Param> read_param(const nlohmann::json& value);
Expected<Graph> read_graph(const nlohmann::json& document, const std::string& file);

}  // namespace stepzero
