#pragma once
// Two ways up meet at a wire with several uses.
#include <algorithm>
#include <cmath>

#include "stepzero/ops/moments.hpp"

namespace stepzero {

// d comes to where `to` is: they vary together, since both come from the same gradient. width: the wire's channels.
inline void meet(Adjoint& to, const Adjoint& d, Index width) {
  if (to.G.empty()) {
    to = d;
    return;
  }
  const double a = to.G.trace(), b = d.G.trace();
  const double deviation = a + b > 0 ? (a * std::sqrt(to.level) + b * std::sqrt(d.level)) / (a + b) : 0;
  const double noise = a + b > 0 ? (a * to.noise + b * d.noise) / (a + b) : 0;
  const double mine = a + b > 0 ? std::clamp(a / (a + b), 0.0, 1.0) : 1;  // one that is rounding may be below 0
  // what lies along the token adds up where it is one number
  const double c = to.twin * std::sqrt(mine * to.along), e = d.twin * std::sqrt((1 - mine) * d.along);
  const double along = mine * to.along + (1 - mine) * d.along + 2 * c * e;
  to = {.G = (to.G + d.G).scaled(1 + 2 * c * e / static_cast<double>(std::max<Index>(width, 1))),
        .along = along,
        .twin = along > 0 ? (c + e) / std::sqrt(along) : 0,
        .flat = mine * to.flat + (1 - mine) * d.flat,
        .damp = mine * to.damp + (1 - mine) * d.damp,
        .stretch = mine * to.stretch + (1 - mine) * d.stretch,
        .level = deviation * deviation,
        .noise = noise};
}

}  // namespace stepzero
