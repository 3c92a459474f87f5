#pragma once
// Scales that meet an objective. Derivatives come from a short prediction (few tokens, no finite width), whose numbers are tied to those
// of the full one: what both differ by at the last point is added until they agree there.
#include <functional>
#include <string>
#include <vector>

#include "stepzero/optim/optimizer.hpp"
#include "stepzero/signal/order.hpp"
#include "stepzero/solve/constraint.hpp"
#include "stepzero/solve/least_squares.hpp"
#include "stepzero/solve/objective.hpp"
#include "stepzero/solve/unknowns.hpp"

namespace stepzero::solve {

struct Problem {
  Unknowns unknowns;
  std::vector<Weighted> objectives;
  std::vector<Constraint> constraints;
  OptimizerOptions optimizer = {};  // settled; of objectives that read a first update
  RateTable rates = {};
  Order order = Order::draws;                                                 // of the full prediction
  std::function<Expected<Batch>(const Architecture& a, Index length)> input;  // 0: as it was asked for
  std::function<void(double share)> progress = {};

  [[nodiscard]] bool steps() const;
};

struct Solution {
  std::vector<double> z;
  std::vector<Target> before, after;  // of the objective and the constraints, by the full prediction
  double cost_before = 0, cost = 0;   // sums of squared misses of the objective
  std::vector<FreeDirection> free;
  std::vector<Target> binding;     // constraints that hold with equality
  std::vector<std::string> worst;  // targets missed by most, where they cannot all be met
  int rounds = 0, evaluations = 0;
  Signal signal_before, signal;  // full predictions
};

// Targets of a signal, predicted or measured.
std::vector<Target> targets_of(const Problem& problem, const Readout& reading);
double cost_of(std::span<const Target> targets);  // of the objective

// The full prediction at a point, with what the objective needs of a first update.
struct Predicted {
  Point point;
  Batch batch;
  Signal signal;
  std::vector<std::optional<double>> effects;
};
Expected<Predicted> predict_at(const Problem& problem, const std::vector<double>& z);

// An error where a constraint cannot be met: it names the constraint, and how near the best point comes.
Expected<Solution> solve(const Problem& problem);

}  // namespace stepzero::solve
