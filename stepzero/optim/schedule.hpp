#pragma once
// How much of its rate each update has: a rise over the first updates, then constant, a half cosine or a line down to `end`.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace stepzero {

enum class Shape : std::uint8_t { constant, cosine, linear };

struct Schedule {
  Shape shape = Shape::constant;
  int warmup = 0;  // updates: update k of them, counted from 0, has share (k + 1) / warmup
  int steps = 0;   // until the share is `end`
  double end = 0;  // share of the last updates

  [[nodiscard]] double share(int update) const {
    if (update < warmup) return (update + 1.0) / warmup;
    if (shape == Shape::constant) return 1;
    const double done = std::clamp((update - warmup) / std::max(1.0, static_cast<double>(steps - warmup)), 0.0, 1.0);
    const double left = shape == Shape::cosine ? 0.5 * (1 + std::cos(std::numbers::pi * done)) : 1 - done;
    return end + (1 - end) * left;
  }
};

}  // namespace stepzero
