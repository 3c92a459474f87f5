#pragma once
// Gradients from draws of a model's kernels.
//
// The rules of predict are for mean kernels, and carry to the first order what single draws differ by. In narrow models of few heads
// that is not enough for the gradients of queries and keys, which go with the square of what tells tokens apart. There the kernels
// themselves are drawn, layer by layer, as a model of this width and these heads has them: Gram matrices of products with a fresh
// matrix are Wishart, branches point anywhere, heads are drawn once. A draw costs nothing that grows with the width. Given it, what
// comes up is known in the mean. The means over draws replace the rules' as far as they are the surer of the two.
#include <functional>

#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

// Moves the predicted gradients of `signal`; the number of draws: 0 where the model has ops or laws that are not drawn so, or where
// too few draws can be afforded. progress: told the share of the draws that are done.
Index refine_by_draws(const Graph& graph, const Batch& batch, const Assignment& laws, Signal& signal,
                      const std::function<void(double)>& progress = {});

}  // namespace stepzero
