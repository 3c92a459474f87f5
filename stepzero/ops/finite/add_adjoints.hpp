#pragma once
// The gradients of a wire that several ops read, added.
#include <algorithm>
#include <cmath>

#include "stepzero/ops/moments.hpp"

namespace stepzero {

// Adds d to `to`. Both descend from one gradient. Their parts along the token may be correlated (twin): then amplitudes add, not
// squares. Notes are dropped, they are for a wire that one op reads. width: the wire's channels.
inline void add_adjoints(UpWire& to, const UpWire& d, Index width) {
  if (to.G.empty()) {
    to = d;
    return;
  }
  const double a = to.G.trace(), b = d.G.trace();
  const double mine = a + b > 0 ? std::clamp(a / (a + b), 0.0, 1.0) : 1;  // a trace that is only rounding may be negative
  const Response &x = to.r, &y = d.r;
  const double c = x.twin * std::sqrt(mine * x.along), e = y.twin * std::sqrt((1 - mine) * y.along);
  const auto mean = [&](double of_x, double of_y) { return mine * of_x + (1 - mine) * of_y; };
  const double along = mean(x.along, y.along) + 2 * c * e;
  const Kernel G = (to.G + d.G).scaled(1 + 2 * c * e / static_cast<double>(std::max<Index>(width, 1)));
  to = UpWire(Adjoint{G}, {.along = along,
                           .twin = along > 0 ? (c + e) / std::sqrt(along) : 0,
                           .flat = mean(x.flat, y.flat),
                           .damp = mean(x.damp, y.damp),
                           .stretch = mean(x.stretch, y.stretch)});
}

// Adds the spread of a gradient of mean square b to that of one of mean square a: standard deviations add, not variances.
inline void add_spreads(Spread& to, double a, const Spread& d, double b) {
  if (!(a + b > 0)) return;
  const double deviation = (a * std::sqrt(to.level) + b * std::sqrt(d.level)) / (a + b);
  to = {.level = deviation * deviation, .noise = (a * to.noise + b * d.noise) / (a + b)};
}

}  // namespace stepzero
