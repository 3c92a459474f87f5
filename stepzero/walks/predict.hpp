#pragma once
// The predict walk: kernels down, kernels up; no weights, no draws of a model, any width.
#include "stepzero/report/signal.hpp"
#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

Signal predict(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme);

}  // namespace stepzero
