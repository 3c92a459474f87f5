#pragma once
// The predict walk: kernels down, kernels up; no weights, no draws of a model, any width.
#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/report/signal.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

struct PredictOptions {
  bool draws = false;      // gradients from draws of the kernels where single draws differ much (predict_drawn.hpp); predict_any does
  bool jacobians = false;  // also: how a change of each layer's stream arrives at the last one. Costs a second way up
  double effort = 1;       // share of the usual sampling: less is faster and noisier
  bool every_sequence = false;  // of a batch, where predict_any lets few stand for many (predict_batch.hpp)
  Index longest = 0;       // tokens of a sequence whose kernels predict_any makes as they are; 0: 512, 256 where heads turn
};

// Kernels grow with the square of the tokens: whether they fit.
Expected<void> check_kernels(const Graph& graph, const Architecture& a, const Batch& batch);

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme, const PredictOptions& options = {});

// The same under laws that no scheme assigned; `name` stands where the scheme's would.
Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws, const std::string& name = {},
               const PredictOptions& options = {});

}  // namespace stepzero
