#pragma once
// Which wires have additive ancestors in common. The theory takes the two wires of a sum or a product, and the queries, keys and
// values of an attention, for uncorrelated; that holds where each is made by fresh matrices of its own.
#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"

namespace stepzero {

// A source is what a table or a matrix makes; other ops pass the sources of their wires on, sums and products join them.
// An error names the node, the two wires that meet there, and a source that both hold.
Expected<void> check_sources(const Graph& graph);

}  // namespace stepzero
