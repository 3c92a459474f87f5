#pragma once
// The predict walk: kernels down, kernels up; no weights, any width. Kernels of narrow models are sampled (predict_drawn).
#include "stepzero/core/error.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/signal.hpp"
#include "stepzero/theory/moment_walk.hpp"

namespace stepzero {

struct PredictOptions {
  // draws: gradients from draws of the kernels where single draws differ much (predict_drawn.hpp)
  Order order = Order::draws;
  double effort = 1;                          // share of the usual sampling: less is faster and noisier, and leaves out the draws
  bool every_sequence = false;                // of a batch, where predict_any lets few stand for many (predict_batch.hpp)
  bool jacobians = false;                     // also: how a change of each layer's stream arrives at the last one. Costs a second way up
  const FluctuationField* without = nullptr;  // a field of the fluctuations that is held: for the table of docs/accuracy.md
  Index longest = 0;  // tokens of a sequence whose kernels predict_any makes as they are; 0: 512, 256 where heads turn
  std::function<void(double share)> progress = {};  // called after every node and every few draws, at last with 1
};

// Kernels grow with the square of the tokens: whether they fit.
Expected<void> check_kernels(const Graph& graph, const Architecture& a, const Batch& batch);

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme, const PredictOptions& options = {});

// The same under laws that no scheme assigned; `name` stands where the scheme's would.
Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Assignment& laws, const std::string& name = {},
               const PredictOptions& options = {});

}  // namespace stepzero
