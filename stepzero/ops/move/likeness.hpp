#pragma once
// What drawn channels or heads say of a part of the network, kept for the parts like it in other layers: numbers by which what happens
// there differs from a closed form.
#include <memory>
#include <vector>

#include "stepzero/ops/move/door.hpp"

namespace stepzero {

// Of a matrix over what a closed form makes of it, on the diagonal and beside it.
class Dependence {
 public:
  Dependence() = default;
  Dependence(const Square& together, const Square& apart);
  // share: of what it is off by
  [[nodiscard]] Square times(const Square& x, double share = 1) const;

 private:
  double diagonal_ = 1, beside_ = 1;
};

// Of heads at one step, over what their mean weights make of it.
struct HeadRatios {
  Dependence size;
  double response = 1, scores = 1;
  std::vector<double> nodes;  // sizes of what is in front of the attention, over those of its input
};

struct Likeness {
  std::shared_ptr<const Tensor<double>> drawn;  // channels of the output
  std::vector<double> pulls, directs;           // of the updates in front of every input: over what normal gradients would give
  // of functions: in small steps, and what is left of it at the first step that is looked at, where inputs move by so much of their size
  Dependence dependence, finite;
  double finite_response = 1, moved = 0;
  Square weights;              // of heads: the mean weights
  std::vector<HeadRatios> at;  // at every step that is looked at
  // of heads, at the first of these steps: all that were drawn over those that serve the others, and the response by the mean weights'
  // values and by all else
  double all_over_some = 1, scores_over_some = 1;
  Square values, beside_values;
  std::vector<std::vector<ParameterMove>> gains;  // of heads

  [[nodiscard]] bool fresh() const { return drawn == nullptr; }
  void see(std::size_t k, const MatrixMove* m, double decrease, double direct);
  [[nodiscard]] double decrease(std::size_t k, const MatrixMove* m) const;
  [[nodiscard]] double direct(std::size_t k, const MatrixMove* m) const;
};

}  // namespace stepzero
