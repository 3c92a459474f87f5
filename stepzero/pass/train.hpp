#pragma once
// The train walk: passes down and up, and after each an optimiser's step. Small and deterministic: what a scheme is good
// for shows in the first hundred steps.
#include <cstdint>
#include <functional>
#include <vector>

#include "stepzero/pass/pass.hpp"

namespace stepzero {

enum class Optimiser : std::uint8_t { sgd, adamw };

struct TrainOptions {
  Optimiser optimiser = Optimiser::adamw;
  int steps = 100;
  double rate = 1e-3;
  double momentum = 0;  // sgd
  double beta1 = 0.9;   // adamw
  double beta2 = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;   // of matrices, apart from the gradient, times the rate
  double clip = 0;           // the most the norm of the whole gradient may be; 0: any
  int warmup = 0;            // steps over which the rate rises from 0
  double layer_decay = 1;    // the rate of layer l is rate * layer_decay^l ...
  bool from_output = false;  // ... with l counted from the last layer instead of the first
};

struct TrainStep {
  double loss = 0;
  double gradient_norm = 0;  // before it is clipped
};

// The rate of a parameter, as a share of the whole: layer_decay^l. What stands before the blocks counts as one before the
// first, what stands behind them as one behind the last, and the end that l is counted from has share 1.
double layer_share(const Param& p, Index layers, const TrainOptions& options);

// Trains the weights that are in `pass`. `next` puts the tokens of a step into the batch of the pass. Ends early when the
// loss is not finite: the last step then says so.
std::vector<TrainStep> train(Pass<float>& pass, const Graph& graph, const TrainOptions& options, const std::function<void(int step)>& next);

}  // namespace stepzero
