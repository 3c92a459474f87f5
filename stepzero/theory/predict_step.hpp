#pragma once
// The first step, predicted: what one update of the weights does to every wire, score, logit and the loss. A third walk, down the graph,
// after predict's down and up: a change goes from node to node (ops/move). No weights; the cost does not depend on the width.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/good_rates.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct PredictStepOptions {
  OptimizerOptions optimizer = {};  // settled
  RateTable rates = {};
  std::vector<double> factors = {};                 // on all rates: the loss is predicted there too
  double effort = 1;                                // share of the usual sampling
  std::function<void(double share)> progress = {};  // told the share that is done
};

struct PredictedStep {
  // The signal of predict, with the optimizer and one step in `steps`, whose values are `predicted`. Names and meanings are those of
  // measure --steps (docs/steps.md); what is not predicted is absent (spectral norms).
  Signal signal;
  GoodRates good_rates;    // of the predicted losses, which tell of the first descent alone (docs/accuracy_step.md)
  std::string limited_by;  // the group of tensors without whose updates the loss would stop falling last; empty: it does not stop
  std::vector<std::optional<double>> below_eps;  // of every parameter: share of its gradient's entries that are smaller than Adam's eps
  double below_eps_of_all = 0;                   // of all parameters that have an eps

  [[nodiscard]] const StepSignal& step() const { return signal.steps.front(); }
};

// An op that has no rule of change is an error that names it.
Expected<PredictedStep> predict_step(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws,
                                     const std::string& scheme, const PredictStepOptions& options);

// Whether every op of the graph has a rule.
Expected<void> check_moves(const Graph& graph);

}  // namespace stepzero
