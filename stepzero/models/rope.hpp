#pragma once
// Rotary settings: how config.json writes them, and the frequencies that the long-context rules make of them.
#include <vector>

#include "stepzero/models/architecture.hpp"
#include "stepzero/models/config_reader.hpp"

namespace stepzero {

struct RopeTable {
  std::vector<double> frequencies;  // one a pair of channels; empty: the plain rule
  double base = 10000;
  double stretch = 1;  // on the turned channels
};

// `a` has been resolved.
RopeTable rope_table(const Architecture& a, Index layer);

struct RopeDefaults {
  double theta = 10000;
  double fraction = 1;           // of a head that turns, and
  bool partial = false;          // whether the family's class can turn a part only
  Index original_positions = 0;  // where the class has a default of its own (Phi-3)
};

// Version 4 writes rope_theta and rope_scaling, version 5 one object rope_parameters, or one for each type of layer.
void import_rope(ConfigReader& c, Architecture& a, const RopeDefaults& defaults = {});

// Long sequences have frequencies of their own under longrope.
inline void choose_rope(Architecture& a, Index length) { a.rope_beyond = length > a.rope_original_positions; }

// The slope of each head's linear bias (ALiBi), empty without one.
std::vector<double> alibi_slopes(const Architecture& a);

}  // namespace stepzero
