#pragma once
// What is wrong with a first step.
#include <vector>

#include "stepzero/report/step.hpp"

namespace stepzero {

// A wire that moves by more than its own size is not the wire that the gradient was made for.
inline constexpr double most_relative_change = 1;
// Scores that move by 1 multiply a weight of attention by e.
inline constexpr double most_score_change = 1;
// Below eps an update of Adam is the gradient over eps and no longer its sign.
inline constexpr double most_below_eps = 0.5;

std::vector<Finding> diagnose_step(const StepSubject& subject);

}  // namespace stepzero
