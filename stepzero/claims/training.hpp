#pragma once
// Short training runs for the claims about training. The task needs attention: say, at every position, the token that
// stood `distance` places before. Whoever looks at its own token only can do no better than ln(vocab).
#include <vector>

#include "stepzero/claims/model.hpp"
#include "stepzero/walks/train.hpp"

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
  Running final;                 // the mean loss of each run's last tenth
  Running largest;               // the largest gradient norm of each run over that of its first step
  std::vector<double> means;     // each run's mean loss over all its steps
};

// `runs` trainings of the model, each from a draw of its own, on tokens of its own.
Course train_runs(const Description& d, const Task& task, const TrainOptions& options, const Settings& settings, int runs);

}  // namespace stepzero::claims
