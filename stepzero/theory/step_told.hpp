#pragma once
// What the third walk tells of tensors: sums over the nodes that use them.
#include <optional>
#include <utility>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/ops/move/door.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/step_signal.hpp"

namespace stepzero {

class StepTold {
 public:
  StepTold(const Graph& graph, const Assignment& laws);

  // The parameters of node i.
  void add(std::size_t i, const std::vector<ParameterMove>& list);
  // What drawn channels say of the matrix that makes node i.
  void refine(std::size_t i, const Mover& mover, double decrease, double direct, StepSignal& step);

  struct BelowEps {
    std::vector<std::optional<double>> of_each;
    double of_all = 0;
  };
  // Fills in the parameters and the first order.
  BelowEps tell(const std::vector<Update>& updates, StepSignal& step) const;

 private:
  struct Sums {
    double norm2 = 0, decrease = 0, squares = 0, entries = 0, below = 0, numbers = 0;
    std::vector<std::pair<std::size_t, double>> parts;  // node, its decrease
  };
  const Graph& graph_;
  std::vector<double> weights_;  // norm of every tensor
  std::vector<Sums> sums_;
};

}  // namespace stepzero
