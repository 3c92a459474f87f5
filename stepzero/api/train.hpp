#pragma once
// From a request to a training: the text, the feed, a graph for every scheme, and what a state on disk must agree on.
#include <vector>

#include "stepzero/core/team.hpp"
#include "stepzero/report/train.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

struct Trained {
  TrainSubject subject;
  std::vector<RunRecord> runs;
};

// Processes of a team share the runs. To be called under guarded().
Expected<Trained> run_training(const ModelRequest& model, const TrainRequest& request, const Watch& watch, const Team& team = {});

// 0, 1, 10, 100, ... and the last: the updates that a page looks at.
std::vector<int> watched_steps(int steps);

}  // namespace stepzero
