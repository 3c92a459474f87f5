#include <cmath>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero {

namespace {

// Least squares over 0, 1, 2, ...; absent where a point is not a number (the angle between equal tokens).
std::optional<double> slope(const std::vector<double>& y) {
  const double n = static_cast<double>(y.size());
  if (y.size() < 2) return {};
  double sum = 0, moment = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (!std::isfinite(y[i])) return {};
    sum += y[i];
    moment += static_cast<double>(i) * y[i];
  }
  const double middle = (n - 1) / 2;
  return (moment - middle * sum) / (n * (n * n - 1) / 12);
}

}  // namespace

void fill_growth(Signal& signal, std::optional<double> Value::* which) {
  std::vector<double> squares, angles, gradients;
  constexpr double none = NAN;
  std::string stack;  // of a model of two the one that makes the output
  for (const NodeSignal& n : signal.nodes) {
    const Place place = place_of(n.name);
    if (!place.is_stream()) continue;
    if (place.stack != stack) {
      stack = place.stack;
      for (auto* list : {&squares, &angles, &gradients}) list->clear();
    }
    squares.push_back(std::log((n.forward.second_moment.*which).value_or(none)));
    angles.push_back(std::log(std::acos(std::min((n.forward.token_cosine.*which).value_or(none), 1.0))));
    gradients.push_back(-std::log((n.backward.norm.*which).value_or(none)));
  }
  signal.growth.forward.*which = slope(squares);
  signal.growth.angle.*which = slope(angles);
  signal.growth.gradient.*which = slope(gradients);
}

}  // namespace stepzero
