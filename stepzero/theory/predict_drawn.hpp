#pragma once
// Gradients from draws of a model's kernels.
//
// The rules of predict are for mean kernels, and carry how single draws differ to first order. In narrow models of few heads that is
// not enough for the gradients of queries and keys, which go with the square of the contrast between tokens. There the Gram matrices
// themselves are drawn, layer by layer, as a model of this width and these heads has them: behind a fresh matrix they are Wishart,
// branches have random directions, heads are drawn once. The cost of a draw does not grow with the width. Given the draw, the usual
// pulls yield the mean gradients. A prediction is the mean of rule and draws, each weighted by what it may be off by.
#include <functional>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// Corrects the predicted gradients of `signal` and returns the number of draws: 0 if the model has ops or laws that cannot be drawn,
// or if too few draws can be afforded. progress: told the share of the draws that are done.
Index refine_by_draws(const Graph& graph, const Batch& batch, const Assignment& laws, Signal& signal,
                      const std::function<void(double)>& progress = {});

}  // namespace stepzero
