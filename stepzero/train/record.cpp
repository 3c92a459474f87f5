#include "stepzero/train/record.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace stepzero {

namespace {

constexpr std::size_t patience = 10;  // steps
constexpr double far_above = 3;       // times the first loss
constexpr double hardly = 0.02;       // of the first loss

double mean_loss(std::span<const TrainStep> steps) {
  return std::accumulate(steps.begin(), steps.end(), 0.0, [](double sum, const TrainStep& s) { return sum + s.loss; }) /
         static_cast<double>(steps.size());
}

}  // namespace

const char* to_string(Outcome outcome) { return outcome == Outcome::fine ? "fine" : outcome == Outcome::diverged ? "diverged" : "stalled"; }

bool is_lost(const std::vector<TrainStep>& steps) {
  if (steps.size() <= patience) return false;
  const double limit = far_above * steps.front().loss;
  return std::all_of(steps.end() - patience, steps.end(), [limit](const TrainStep& s) { return !(s.loss <= limit); });
}

double last_loss(const std::vector<TrainStep>& steps) {
  return mean_loss(std::span(steps).last(std::max<std::size_t>(1, steps.size() / 10)));
}

Outcome judge(const std::vector<TrainStep>& steps) {
  if (steps.empty()) return Outcome::fine;
  const auto broken = [](const TrainStep& s) { return !std::isfinite(s.loss); };
  if (std::ranges::any_of(steps, broken) || is_lost(steps)) return Outcome::diverged;
  if (steps.size() <= patience) return Outcome::fine;  // too few to tell
  const double first = steps.front().loss, last = last_loss(steps);
  if (last > first) return Outcome::diverged;
  return last > (1 - hardly) * first ? Outcome::stalled : Outcome::fine;
}

}  // namespace stepzero
