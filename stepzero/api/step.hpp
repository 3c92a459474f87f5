#pragma once
// The first step of a model: by theory, by real passes, or both side by side.
#include "stepzero/report/step.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

struct StepRequest {
  ModelRequest model;
  OptimizerOptions optimizer = {};
  std::string rates = {};
  InputOptions input = {};
  bool predicted = true, measured = false;
  bool search = true;  // the loss over the rate
  std::uint64_t seed = 0;
  int seeds = 4;  // of what is measured
};

Expected<StepSubject> run_step(const StepRequest& request, const Watch& watch = {});

}  // namespace stepzero
