#pragma once
// Processes that share one run: each does its part, then hands it to all others. A process alone is a team of one.
#include <functional>
#include <string>
#include <vector>

#include "stepzero/core/error.hpp"

namespace stepzero {

struct Team {
  int rank = 0;
  int size = 1;
  // The bytes of every member, in the order of their ranks. All must call it, the same number of times. Empty: alone.
  std::function<std::vector<std::string>(const std::string& own)> exchange = {};

  // The parts of all members; where any has failed, the first error, for all of them.
  [[nodiscard]] Expected<std::vector<std::string>> share(const Expected<std::string>& own) const;
};

}  // namespace stepzero
