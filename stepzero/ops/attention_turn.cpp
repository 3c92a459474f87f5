#include "stepzero/ops/attention_turn.hpp"

#include <cmath>

namespace stepzero {

Turn::Turn(const Rotary& rotary, Index length) {
  const double span = 2 * static_cast<double>(length), dim = static_cast<double>(rotary.head_dim);
  const double f2 = rotary.stretch * rotary.stretch;
  constexpr double hardly = 0.3;  // radians: cosines of one wave at the root mean square are right to 3e-4
  double slow = 0, slow_squares = 0;
  for (Index i = 0; i < rotary.turned / 2; ++i) {
    const double w = rotary.frequency(i);
    if (std::abs(w) * span >= hardly) {
      waves_.push_back({w, 2 * f2 * f2 / dim});
    } else {
      ++slow;
      slow_squares += w * w;
    }
  }
  if (slow > 0) waves_.push_back({std::sqrt(slow_squares / slow), 2 * f2 * f2 * slow / dim});
  const double passes = static_cast<double>(rotary.head_dim - rotary.turned) / dim;
  for (Index p = 0; p < 2 * length; ++p) {
    double sum = 0;
    for (const Wave& wave : waves_) sum += wave.weight * std::cos(static_cast<double>(p) * wave.frequency);
    score_.push_back(sum + passes);
    side_.push_back(sum / f2 + passes);
  }
  if (passes > 0) waves_.push_back({0, passes});
}

}  // namespace stepzero
