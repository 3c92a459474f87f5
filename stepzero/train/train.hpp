#pragma once
// The train walk over several runs: seeds, and the same model under other schemes. Runs are side by side, a thread each, or one after
// the other with all threads where there is one or they are large; processes of a team share them. Bits do not depend on any of it.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stepzero/core/team.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/train/feed.hpp"
#include "stepzero/train/record.hpp"
#include "stepzero/train/state.hpp"

namespace stepzero {

// A model under one scheme. All of a plan read the same feed.
struct Contender {
  std::string scheme;
  const Graph* graph = nullptr;
  const Architecture* architecture = nullptr;
  const Assignment* laws = nullptr;
  RunSettings settings = {};
  std::string config = {};  // of what is saved: a model's configuration, or its adapters'
  std::string config_name = "config.json";
};

struct TrainPlan {
  std::vector<Contender> contenders;
  const Feed* feed = nullptr;
  TrainOptions options = {};
  int steps = 100;
  double until = 0;  // end once the held-out loss, or without one the mean of the last ten, is at most this; 0: never
  std::uint64_t seed = 0;
  int seeds = 1;
  int validate_every = 0;       // 0: a tenth of the steps
  std::vector<int> watch = {};  // steps after which every wire is looked at
  std::string weights = {};     // a checkpoint to start from; empty: drawn
  std::string save = {};        // a directory: a state now and then, the final weights
  int save_every = 0;           // 0: as validate_every
  bool resume = false;          // from the states in `save`, where there are any
  Team team = {};
  std::function<void(const RunRecord& record, int run, double tokens_per_second)> progress = {};  // after every update, one at a time
  std::function<void(const std::string&)> warn = {};
};

// The directory of one run: `save` itself where there is one run.
std::string directory_of(const TrainPlan& plan, int run);

// The records of all contenders and seeds: contender by contender.
Expected<std::vector<RunRecord>> train(const TrainPlan& plan);

}  // namespace stepzero
