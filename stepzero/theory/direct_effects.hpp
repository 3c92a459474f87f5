#pragma once
// What a first update of one node's parameters does to that node's output by itself, on its old input: the direct part of predict_step.
// It needs no walk of changes, so it costs little more than a prediction.
#include <optional>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/order.hpp"

namespace stepzero {

struct DirectOptions {
  OptimizerOptions optimizer = {};  // settled
  RateTable rates = {};
  Order order = Order::fluctuations;
  double effort = 1;  // share of the usual sampling
};

// Of every node: root mean square over tokens and channels. Absent where nothing moves, or no rule is known.
std::vector<std::optional<double>> direct_effects(const Graph& graph, const Batch& batch, const Assignment& laws,
                                                  const DirectOptions& options);

}  // namespace stepzero
