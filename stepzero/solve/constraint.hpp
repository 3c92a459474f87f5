#pragma once
// What a solution must keep to. Bounds are targets of one side, far heavier than the objective's; a solution that misses one is refused.
//
//     loss=x          |loss - ln V| <= x, V the number of classes
//     scores=a..b     a <= variance of the scores <= b, in every attention
//     queries=x       ||d q|| >= x ||d v||, in every attention: queries and keys learn
//     range=FORMAT    a <= rms <= b / 6 of every wire and weight, a and b the format's smallest and largest number
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/solve/reading.hpp"

namespace stepzero::solve {

struct Constraint {
  std::string text;  // as it was told: "scores=0.1..1"
  std::string name;
  double low = 0, high = 0;

  [[nodiscard]] std::vector<Target> targets(const Readout& reading) const;
};

Expected<Constraint> parse_constraint(const std::string& text);

}  // namespace stepzero::solve
