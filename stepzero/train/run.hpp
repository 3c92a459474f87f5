#pragma once
// One training run: a model's weights, its optimizer, and where it stands. A step is passes down and up, and an update.
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "stepzero/optim/optimizer.hpp"
#include "stepzero/optim/schedule.hpp"
#include "stepzero/pass/pass.hpp"

namespace stepzero {

struct TrainOptions {
  OptimizerOptions optimizer = {};  // settled
  RateTable rates = {};
  Schedule schedule = {};
  int accumulate = 1;  // batches whose mean gradient makes one update
};

struct TrainStep {
  double loss = 0;                                                  // before the update
  double gradient_norm = std::numeric_limits<double>::quiet_NaN();  // before it is clipped; NaN: none was made
  double rate = 0;
};

// Puts the tokens of an update into the batch of the pass: of its part `part`, of `accumulate`.
using NextBatch = std::function<void(int update, int part)>;

template <class S>
class TrainRun {
 public:
  // `batch` is what `next` writes to. Weights are put into pass() before the first step.
  TrainRun(const Graph& graph, const Batch& batch, const TrainOptions& options, NextBatch next);

  // One update. A loss or a gradient that is not finite ends the run.
  TrainStep step();
  // The loss where the run stands, on the batch of its next update.
  TrainStep look();

  [[nodiscard]] bool over() const { return over_; }
  // Where the run ended: the first node whose output is not finite, or the node of the first tensor on the way up whose gradient is not.
  [[nodiscard]] std::string where();
  [[nodiscard]] int updates() const { return updates_; }
  void set_updates(int updates) { updates_ = updates; }
  [[nodiscard]] Pass<S>& pass() { return pass_; }
  [[nodiscard]] Optimizer<S>& optimizer() { return optimizer_; }

  static double memory_needed(const Graph& graph, const Batch& batch, const TrainOptions& options);

 private:
  double gather(int part);
  void update(double share);

  const Graph& graph_;
  TrainOptions options_;
  NextBatch next_;
  Pass<S> pass_;
  Optimizer<S> optimizer_;
  int updates_ = 0;
  bool over_ = false;
  double squares_ = 0;                // of the gradient
  std::vector<Tensor<S>> gradients_;  // empty: tensors are updated as their gradients come
  std::vector<bool> made_;            // whether this update has a gradient of them
  int broken_ = -1;                   // the tensor whose gradient is not finite
};

extern template class TrainRun<float>;
extern template class TrainRun<double>;

}  // namespace stepzero
