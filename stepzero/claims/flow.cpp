#include "stepzero/claims/flow.hpp"

#include <cmath>

#include <fmt/format.h>

namespace stepzero::claims {

std::vector<Setting> flow_settings() {
  return {
      draws(40), size("layers", 12, 64, "layers of the transformers"), {"power", 0.5, "branches are scaled by (2 layers)^-power", -2, 4}};
}

std::vector<Flow> flows(const Settings& s) {
  const std::string by_depth = fmt::format("residual_scale={}", std::pow(2 * s("layers"), -s("power")));
  return {{"pre-norm, branches times 1/sqrt(2N)", "xavier-normal", {by_depth}, true},
          {"post-norm, branches times 1/sqrt(2N)", "xavier-normal", {"norm_placement=post", by_depth}, true},
          {"DeepNet", "deepnet", {}, true},
          {"pre-norm, Xavier", "xavier-normal", {}, false},
          {"pre-norm, He", "he", {}, false},
          {"no norm, Xavier", "xavier-normal", {"norm=none"}, false}};
}

std::vector<Signal> signals(const Settings& s, const Flow& f) {
  Description d{.scheme = f.scheme, .set = {"width=64", "heads=4", fmt::format("layers={}", s.size("layers"))}, .tokens = 12};
  d.set.insert(d.set.end(), f.set.begin(), f.set.end());
  return measured(make_model(d), s, s.draws());
}

Curve flow_curve(const Flow& f, const std::vector<Signal>& all, Index layers, double (*of)(const Signal&, Index), Index against) {
  Curve out{f.name, {}, {}};
  for (Index l = 0; l <= layers; ++l) {
    out.x.push_back(static_cast<double>(l));
    out.y.push_back(over(all, [&](const Signal& x) { return of(x, l) / of(x, against); }).mean);
  }
  return out;
}

}  // namespace stepzero::claims
