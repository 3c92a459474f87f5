// Steps as they are asked for, and as they are told.
#include <cmath>
#include <utility>

#include "stepzero/pass/steps.hpp"

namespace stepzero {

Expected<StepOptions> step_options(int steps, const OptimizerOptions& optimizer, const std::string& rates, const Graph& graph) {
  if (steps == 0) return {};
  auto all = settled(optimizer);
  if (!all) return std::unexpected(all.error());
  auto table = rates.empty() ? Expected<RateTable>(RateTable()) : read_rates(rates, graph.params);
  if (!table) return std::unexpected(table.error());
  return StepOptions{.steps = steps, .optimizer = std::move(*all), .rates = std::move(*table)};
}

OptimizerSignal described(const OptimizerOptions& o) {
  OptimizerSignal s{.name = o.name, .rate = o.rate.value_or(0), .settings = {}};
  const auto add = [&](const char* key, double value, bool here) {
    if (here) s.settings.emplace_back(key, value);
  };
  const bool muon = o.name == Muon::name, adam = muon || o.name == AdamW::name;
  add("rate_adamw", o.rate_adamw.value_or(0), muon);
  add("momentum", o.momentum.value_or(0), muon || o.name == Sgd::name);
  add("nesterov", o.nesterov ? 1 : 0, muon || o.name == Sgd::name);
  add("beta1", o.beta1.value_or(0), o.name != Sgd::name);
  add("beta2", o.beta2.value_or(0), o.name != Sgd::name);
  add("eps", o.eps, adam);
  add("newton_schulz", o.newton_schulz, muon);
  add("decay", o.decay, true);
  add("clip", o.clip, true);
  return s;
}

std::vector<double> searched_rates() {
  constexpr int down = 8, up = 14;
  std::vector<double> factors;
  for (int k = -down; k <= up; ++k) factors.push_back(std::ldexp(1.0, k));
  return factors;
}

}  // namespace stepzero
