#include "stepzero/theory/step_curve.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero {

std::vector<double> walked_factors(const std::vector<double>& asked, double first_order, double loss) {
  constexpr double most = 1000, least = 1e-4;  // of the loss
  std::vector<double> out;
  for (std::size_t i = 0; i < asked.size(); ++i) {
    const bool lowest = out.empty() && (i + 2 >= asked.size() || asked[i + 2] * first_order > least * loss);
    const bool even = asked.size() <= 6 || i % 2 == 0 || i + 1 == asked.size();
    if (asked[i] * first_order > most * loss && out.size() > 3) break;
    if (even && (lowest || !out.empty())) out.push_back(asked[i]);
  }
  return out;
}

DecreaseCurve::DecreaseCurve(double slope, const std::vector<double>& factors, const std::vector<double>& decreases) : slope_(slope) {
  std::vector<double> share;  // of the straight line
  for (std::size_t i = 0; i < factors.size() && std::isfinite(decreases[i]); ++i) {
    place_.push_back(std::log(factors[i]));
    share.push_back(decreases[i] / (slope_ * factors[i]));
  }
  if (place_.empty()) return;
  knee_ = std::exp(place_.back());
  for (std::size_t i = 0; i < share.size(); ++i) {
    if (share[i] > 0.5) continue;
    const double back = i == 0 ? 0 : (0.5 - share[i]) / (share[i - 1] - share[i]);
    knee_ = std::exp(place_[i] - back * (i == 0 ? 0 : place_[i] - place_[i - 1]));
    break;
  }
  for (std::size_t i = 0; i < share.size(); ++i) value_.push_back((1 + factors[i] / knee_) * share[i]);
}

std::optional<double> DecreaseCurve::at(double factor) const {
  if (place_.empty() || !(slope_ > 0)) return {};
  const double x = std::log(factor);
  constexpr double rounding = 1e-9;
  if (x > place_.back() + rounding) return {};
  if (x < place_[0]) {  // s = 1 - c f
    const double lowest = std::exp(place_[0]), share = value_[0] / (1 + lowest / knee_);
    return slope_ * factor * (1 - (1 - share) * factor / lowest);
  }
  if (place_.size() < 4) {
    for (std::size_t i = 0; i < place_.size(); ++i) {
      if (std::abs(place_[i] - x) < rounding) return slope_ * factor * value_[i] / (1 + factor / knee_);
    }
    return {};
  }
  const auto above = static_cast<std::size_t>(std::ranges::lower_bound(place_, x - rounding) - place_.begin());
  const std::size_t from = std::clamp<std::size_t>(above < 2 ? 0 : above - 2, 0, place_.size() - 4);
  double sum = 0;
  for (std::size_t i = from; i < from + 4; ++i) {
    double weight = 1;
    for (std::size_t j = from; j < from + 4; ++j) weight *= i == j ? 1 : (x - place_[j]) / (place_[i] - place_[j]);
    sum += weight * value_[i];
  }
  return slope_ * factor * sum / (1 + factor / knee_);
}

}  // namespace stepzero
