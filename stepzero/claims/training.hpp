#pragma once
// Short training runs for the claims about training. The task needs attention: say, at every position, the token that
// stood `distance` places before. Whoever looks at its own token only can do no better than ln(vocab).
#include <string>
#include <vector>

#include "stepzero/claims/model.hpp"
#include "stepzero/train/run.hpp"

namespace stepzero::claims {

struct Task {
  Index vocab = 16;
  Index length = 16;
  Index sequences = 8;
  Index distance = 1;
};

struct Course {
  std::vector<double> loss;      // each step's, averaged over the runs
  std::vector<double> gradient;  // norm, likewise
  Running last;                  // the mean loss of each run's last tenth
  Running largest;               // the largest gradient norm of each run over that of its first step
  std::vector<double> means;     // each run's mean loss over all its steps
};

// How the claims train: AdamW with betas 0.9 and 0.99, a rise over the first 5 updates, the gradient clipped to a norm of 1.
struct Training {
  int steps = 100;
  double rate = 1e-3;
  RateTable rates = {};
};

// `runs` trainings of the model, each from a draw of its own, on tokens of its own.
Course train_runs(const Description& d, const Task& task, const Training& training, const Settings& settings, int runs);

// The rate of layer l times decay^l, l counted from the first layer or from the last. What stands before the blocks counts as one
// before the first, what stands behind them as one behind the last; the end that l is counted from has the whole rate.
RateTable layer_decay(Index layers, double decay, bool from_output);

// Loss against step.
Curve loss_curve(std::string name, const Course& course);

// Twelve layers on a small task, as a scheme draws them: what post-norm under Xavier does not learn. `last` is in units of
// ln V, the loss of what knows nothing. Setting: steps. After 80 steps the losses of runs that learn are spread by about
// 0.035 around 0.15: the interval of 10 runs reaches 0.13, and the bound of 0.5 is 0.35 away, so that no seed leaves it undecided.
constexpr Index kDeepLayers = 12;
Course train_deep(const Settings& settings, const std::string& scheme, const std::vector<std::string>& set, int runs);

std::string residual_scale(double scale);  // "residual_scale=..."

}  // namespace stepzero::claims
