#pragma once
// The numbers that maps show: each a name, what it is, and the values at which something changes.
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/solve/reading.hpp"

namespace stepzero::solve {

struct Quantity {
  const char* name;
  const char* words;
  std::vector<double> critical;  // level lines
  bool logarithmic;              // shown by its logarithm
  double (*of)(const Readout& readout);
};

std::span<const Quantity> quantities();

}  // namespace stepzero::solve
