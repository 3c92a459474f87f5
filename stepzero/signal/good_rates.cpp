#include "stepzero/signal/good_rates.hpp"

#include <algorithm>
#include <cmath>

namespace stepzero {

namespace {

struct Curve {
  std::vector<double> place;     // ln of the rate
  std::vector<double> decrease;  // -infinity where the loss is not finite
};

Curve curve_of(const StepSignal& step, std::optional<double> Value::* which) {
  Curve c;
  for (const StepSignal::Rate& r : step.rates) {
    if (!(r.loss.*which)) continue;
    const double decrease = (step.before.*which).value_or(NAN) - (r.loss.*which).value_or(NAN);
    c.place.push_back(std::log(r.rate));
    c.decrease.push_back(std::isfinite(decrease) ? decrease : -INFINITY);
  }
  return c;
}

// Where the decrease falls to `level` between point i and the next towards `to`.
double crossing(const Curve& c, std::size_t i, std::size_t to, double level) {
  const double inside = c.decrease[i], outside = c.decrease[to];
  const double share = std::isfinite(outside) ? (inside - level) / (inside - outside) : 0.5;
  return std::exp(c.place[i] + share * (c.place[to] - c.place[i]));
}

double vertex(const Curve& c, std::size_t i) {
  if (i == 0 || i + 1 == c.place.size() || !std::isfinite(c.decrease[i + 1])) return std::exp(c.place[i]);
  const double left = c.decrease[i] - c.decrease[i - 1], right = c.decrease[i] - c.decrease[i + 1];
  const double step = c.place[i + 1] - c.place[i];
  return std::exp(c.place[i] + (left + right > 0 ? step * (left - right) / (2 * (left + right)) : 0));
}

}  // namespace

GoodRates good_rates(const StepSignal& step, std::optional<double> Value::* which, Descent descent) {
  GoodRates out;
  const Curve c = curve_of(step, which);
  auto top = std::ranges::max_element(c.decrease);
  double most = 0;
  for (auto it = c.decrease.begin(); descent == Descent::first && it != c.decrease.end(); ++it) {
    if (*it < (1 - rises_by) * most) {
      top = std::max_element(c.decrease.begin(), it);
      break;
    }
    most = std::max(most, *it);
  }
  if (top == c.decrease.end() || !(*top > 0)) return out;
  const auto best = static_cast<std::size_t>(top - c.decrease.begin());
  out.best = vertex(c, best);
  const double level = good_share * *top;
  for (std::size_t i = best; i > 0 && !out.low; --i) {
    if (c.decrease[i - 1] < level) out.low = crossing(c, i, i - 1, level);
  }
  for (std::size_t i = best; i + 1 < c.decrease.size() && !out.high; ++i) {
    if (c.decrease[i + 1] < level) out.high = crossing(c, i, i + 1, level);
  }
  for (std::size_t i = best; i + 1 < c.decrease.size() && !out.stops; ++i) {
    if (!(c.decrease[i + 1] > 0)) out.stops = crossing(c, i, i + 1, 0);
  }
  return out;
}

}  // namespace stepzero
