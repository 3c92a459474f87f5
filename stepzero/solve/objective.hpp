#pragma once
// What a solution should be like: a list of numbers of the signal, and what they should be. One objective a file (objective_*.cpp), each
// with one formula.
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/solve/reading.hpp"

namespace stepzero::solve {

using Settings = std::map<std::string, double, std::less<>>;

struct Objective {
  struct Setting {
    const char* name;
    double value;  // unless told
    const char* words;
  };
  const char* name;
  const char* summary;
  const char* formula;
  std::vector<Setting> settings;
  std::vector<const char*> free;  // what may move, unless told
  bool steps = false;             // reads the effects of a first update
  std::vector<Target> (*targets)(const Readout& reading, const Settings& settings);
};

// objective_flat.cpp, ...
Objective flat_objective();
Objective depth_objective();
Objective update_objective();
Objective tangent_objective();
Objective range_objective();

std::span<const Objective> objectives();
Expected<const Objective*> find_objective(std::string_view name);

// Several at once.
struct Weighted {
  const Objective* objective = nullptr;
  double weight = 1;
  Settings settings = {};
};

// "depth", "flat+0.5*depth"; every one of `told` ("attention=0.5") must be a setting of one of them.
Expected<std::vector<Weighted>> parse_objective(std::string_view text, const std::vector<std::string>& told);

std::vector<Target> targets_of(std::span<const Weighted> objectives, const Readout& reading);

// Formats of numbers, as `range` and its constraint ask for them.
struct NumberFormat {
  const char* name;
  double smallest, largest;  // above 0
};
std::span<const NumberFormat> number_formats();

}  // namespace stepzero::solve
