#pragma once
// An optimizer's first updates as the third walk knows them, and the groups of tensors whose updates can be left out.
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/ops/move/direct.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// Of every parameter. Clipping asks for the norm of the whole gradient.
std::vector<Update> first_updates(const Graph& graph, const OptimizerOptions& options, const RateTable& rates, double gradient_norm);

// What the loss decreases by to first order, from norms of gradients alone: not less than it is.
double rough_decrease(const Graph& graph, const std::vector<Update>& updates, const Signal& predicted);

// "embeddings", ...: Update::group is a place in this list.
const std::vector<std::string>& update_groups();

}  // namespace stepzero
