#pragma once
// From a request to a map.
#include "stepzero/core/team.hpp"
#include "stepzero/report/sweep.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

// Processes of a team share the cells. To be called under guarded().
Expected<SweepSubject> run_sweep(const ModelRequest& model, const SweepRequest& request, const Watch& watch, const Team& team = {});

}  // namespace stepzero
