#include "stepzero/solve/reading.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "stepzero/graph/questions.hpp"

namespace stepzero::solve {

double Target::off() const {
  const double x = std::log(std::max(value, 1e-30) / std::max(wanted, 1e-30));
  if (!std::isfinite(value)) return std::numeric_limits<double>::quiet_NaN();
  if (kind == Kind::at_most) return std::max(x, 0.0);
  if (kind == Kind::at_least) return std::min(x, 0.0);
  return x;
}

void settle_levels(std::vector<Target>& targets) {
  std::map<int, std::pair<double, double>> sums;  // of logarithms, of weights
  for (const Target& t : targets) {
    if (t.level < 0) continue;
    sums[t.level].first += t.weight * t.weight * std::log(std::max(t.value, 1e-30));
    sums[t.level].second += t.weight * t.weight;
  }
  for (Target& t : targets) {
    if (t.level >= 0) t.wanted = std::exp(sums[t.level].first / sums[t.level].second);
  }
}

double Readout::of(const Value& v) const { return (v.*which_).value_or(std::numeric_limits<double>::quiet_NaN()); }

std::vector<Stream> Readout::streams() const {
  std::vector<Stream> out;
  for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Place place = place_of(graph_.nodes[i].name);
    if (!place.is_stream()) continue;
    auto it = std::ranges::find(out, place.stack, &Stream::stack);
    if (it == out.end()) it = out.insert(out.end(), Stream{place.stack, {}});
    it->nodes.push_back(i);
  }
  return out;
}

std::vector<Sum> Readout::sums() const {
  std::vector<Sum> out;
  for (const Node& node : graph_.nodes) {
    const auto scales = sum_of(node.op);
    if (!scales || node.name.ends_with(".out")) continue;  // experts' parts are added within a branch
    const auto x = static_cast<std::size_t>(node.inputs[0]), f = static_cast<std::size_t>(node.inputs[1]);
    const Place branch = place_of(graph_.nodes[f].name);
    const double skip = scales->skip * scales->skip * square(x), added = scales->branch * scales->branch * square(f);
    out.push_back({.name = node.name,
                   .stack = branch.stack,
                   .layer = branch.layer,
                   .attention = branch.part.starts_with("attn") || branch.part.starts_with("cross"),
                   .share = added / skip});
  }
  return out;
}

}  // namespace stepzero::solve
