#pragma once
#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// A Signal with every node, attention and parameter of the graph named and no value yet.
Signal describe(const Graph& graph, const Architecture& a, const Batch& batch);
// The same of one step, with the names that are in `signal`.
StepSignal describe_step(const Graph& graph, const Signal& signal);

}  // namespace stepzero
