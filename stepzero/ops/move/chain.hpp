#pragma once
// A few ops in a row on drawn channels, by their own doors: what has no closed form in a step (functions, gates, heads).
#include <vector>

#include "stepzero/ops/all.hpp"
#include "stepzero/ops/move/door.hpp"

namespace stepzero {

struct ChainNode {
  AnyOp op;
  std::vector<int> inputs;          // k >= 0: node k of the chain; -1 - k: input k of the chain
  std::vector<double> theta;        // what every number of each parameter is,
  std::vector<double> spread = {};  // and the standard deviation that they are drawn with; empty: 0
};

class Chain {
 public:
  Chain(const Batch& batch, std::vector<ChainNode> nodes);

  // Every node's output and what it keeps.
  struct Values {
    std::vector<Tensor<double>> x;  // the inputs of the chain
    std::vector<Tensor<double>> y, keep;
  };
  using Parameters = std::vector<std::vector<Tensor<double>>>;  // of every node
  [[nodiscard]] Values forward(std::vector<Tensor<double>> x) const { return forward(std::move(x), theta_); }
  [[nodiscard]] Values forward(std::vector<Tensor<double>> x, const Parameters& theta) const;
  // Gradients of the inputs of the chain, and where it is wanted of its parameters.
  [[nodiscard]] std::vector<Tensor<double>> backward(const Values& values, const Tensor<double>& dy, Parameters* dtheta = nullptr) const;
  [[nodiscard]] const Parameters& theta() const { return theta_; }
  [[nodiscard]] Parameters& theta() { return theta_; }
  [[nodiscard]] const std::vector<ChainNode>& nodes() const { return nodes_; }
  [[nodiscard]] View<const double> input_of(const Values& values, std::size_t node, std::size_t k) const;

 private:
  [[nodiscard]] std::vector<View<const double>> inputs_of(const Values& values, const ChainNode& node) const;

  const Batch& batch_;
  std::vector<ChainNode> nodes_;
  Parameters theta_;
};

Tensor<double> copy_of(const Tensor<double>& x);
Chain::Parameters copy_of(const Chain::Parameters& theta);

}  // namespace stepzero
