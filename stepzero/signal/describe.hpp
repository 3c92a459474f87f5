#pragma once
#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// A Signal with every node, attention and parameter of the graph named and no value yet.
Signal describe(const Graph& graph, const Architecture& a, const Batch& batch);

}  // namespace stepzero
