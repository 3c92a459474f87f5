#pragma once
// The transformers of forward-flow and backward-flow: norm placements and schemes, with branches scaled down or not.
#include <string>
#include <vector>

#include "stepzero/claims/branches.hpp"
#include "stepzero/claims/model.hpp"

namespace stepzero::claims {

struct Flow {
  const char* name;
  const char* scheme;
  std::vector<std::string> set;
  bool scaled;  // branches small beside the stream
};

// Settings of both claims: draws, layers, power.
std::vector<Setting> flow_settings();
std::vector<Flow> flows(const Settings& s);
std::vector<Signal> signals(const Settings& s, const Flow& f);

// of(l) / of(against) for every layer l, averaged over the draws
Curve flow_curve(const Flow& f, const std::vector<Signal>& all, Index layers, double (*of)(const Signal&, Index), Index against);

}  // namespace stepzero::claims
