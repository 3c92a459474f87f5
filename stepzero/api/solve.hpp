#pragma once
// From a request to a solution, and to the scheme that it is.
#include "stepzero/report/solve.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

// `a` is as `scheme` left it.
Expected<SolveSubject> run_solve(const Architecture& a, const Scheme& scheme, const SolveRequest& request, const Watch& watch);

// The sum of squared misses of the objective, of the model as it is.
Expected<double> cost_as_it_is(const Architecture& a, const Scheme& scheme, const SolveRequest& request);

}  // namespace stepzero
