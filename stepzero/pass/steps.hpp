#pragma once
// What `measure --steps` adds to a pass: updates of the weights, and after each the pass once more, compared with the one before.
#include <memory>

#include "stepzero/optim/optimizer.hpp"
#include "stepzero/pass/pass.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct StepOptions {
  int steps = 0;                    // 0: none
  OptimizerOptions optimizer = {};  // settled
  RateTable rates = {};
  bool search = true;  // the loss along the first update, of real weights
};

// Settled and checked; `rates` is the file of a table, or empty.
Expected<StepOptions> step_options(int steps, const OptimizerOptions& optimizer, const std::string& rates, const Graph& graph);

// As a signal tells of it.
OptimizerSignal described(const OptimizerOptions& options);

// The factors on the rate at which the loss after the first step is looked up.
std::vector<double> searched_rates();

// Steps of real weights, all of them held twice, with a gradient each. `observer` goes into the first pass up.
class RealSteps {
 public:
  RealSteps(const Graph& graph, const Batch& batch, const StepOptions& options);
  ~RealSteps();
  [[nodiscard]] Observer<float> observer();
  // Begins where `pass` is: down and up, with its gradients observed. Fills signal.steps. `pass` is left with other weights.
  void run(Pass<float>& pass, Signal& signal, const std::function<void()>& tick = {});

  static double memory_needed(const Graph& graph, const Batch& batch, const StepOptions& options);  // with that of the pass

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The first step of matrices that are not made. The pass keeps its cuts.
class WeightlessSteps {
 public:
  // `stand_ins` are those of the pass.
  WeightlessSteps(const Graph& graph, const Batch& batch, const StepOptions& options, Weightless& stand_ins, const Pass<float>& pass);
  ~WeightlessSteps();
  [[nodiscard]] Observer<float> observer();
  void run(Pass<float>& pass, Signal& signal, const std::function<void()>& tick = {});

  static double memory_needed(const Graph& graph, const Batch& batch, const Weightless& stand_ins);  // with that of the pass

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// What stands in the way of a weightless step: a tensor whose update needs all of it at once, in parts that do not read the same wire.
Expected<void> check_weightless_step(const Graph& graph, const Weightless& stand_ins, const StepOptions& options);

}  // namespace stepzero
