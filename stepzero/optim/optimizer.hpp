#pragma once
// Optimizers. A rule says what one tensor's update is, one rule a file; an Optimizer holds the rule, the rate and the memory of every
// tensor of a model. Tensors are updated one at a time, while their gradient is hot: no second copy of the gradients is needed.
#include <variant>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/optim/adamw.hpp"
#include "stepzero/optim/lion.hpp"
#include "stepzero/optim/muon.hpp"
#include "stepzero/optim/options.hpp"
#include "stepzero/optim/rates.hpp"
#include "stepzero/optim/sgd.hpp"

namespace stepzero {

using Rule = std::variant<Sgd, AdamW, Lion, Muon>;  // the one list

// Whether Muon updates a tensor as a matrix: those inside the network, as stored. Tables, heads, vectors and the kernels that
// read patches of an image are AdamW's.
bool is_hidden_matrix(const Param& param);

template <class S>
class Optimizer {
 public:
  // `options` are settled. `rates` overrides the rate, the decay and eps of single tensors.
  Optimizer(const Graph& graph, const OptimizerOptions& options, const RateTable& rates = {});

  // Updates one tensor. `share`: of its rate, by the schedule; `shrink`: of its gradient, by clipping. Matrices whose update is
  // costly (Muon's) wait for finish(): their gradient is taken in, and `w` must stay where it is until then.
  void take(int param, View<S> w, View<const S> g, double share = 1, double shrink = 1);
  void finish();

  [[nodiscard]] const Rule& rule(int param) const { return tensors_[static_cast<std::size_t>(param)].rule; }
  [[nodiscard]] const TensorRate& rate(int param) const { return tensors_[static_cast<std::size_t>(param)].rate; }
  // What is remembered of a tensor from one update to the next, as it is saved and read again.
  [[nodiscard]] std::vector<Tensor<S>>& memory(int param) { return tensors_[static_cast<std::size_t>(param)].memory; }
  [[nodiscard]] Index& updates(int param) { return tensors_[static_cast<std::size_t>(param)].updates; }

 private:
  struct PerTensor {
    Rule rule;
    TensorRate rate;
    bool skips_zero = false;  // an expert that no token chose has no gradient, and is left as it is
    Index updates = 0;
    std::vector<Tensor<S>> memory;
    std::vector<Waiting<S>> waiting;  // at most one
  };
  std::vector<PerTensor> tensors_;
};

extern template class Optimizer<float>;
extern template class Optimizer<double>;

}  // namespace stepzero
