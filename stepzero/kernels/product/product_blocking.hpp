#pragma once
// How our own products see and cut a matrix: parts for the caches, by the shape alone; strips for the threads, on which no bit depends.
#include <algorithm>
#include <functional>
#include <vector>

#include "stepzero/core/parallel.hpp"

namespace stepzero::kernels {

// A matrix as packing sees it: steps from one row of op(A) or column of op(B) to the next, and from one inner index to the next.
struct Source {
  const float* data;
  Index across, along;  // one of the two is 1
  [[nodiscard]] Source at(Index w, Index k) const { return {data + w * across + k * along, across, along}; }
};

inline Index round_up(Index n, Index unit) { return (n + unit - 1) / unit * unit; }

// Near equal parts of n > 0 in whole units, none above `most`, which is whole units too.
inline Index part_of(Index n, Index most, Index unit) {
  const Index parts = (n + most - 1) / most;
  return round_up((n + parts - 1) / parts, unit);
}

struct StripSizes {
  Index unit, least, most;
};

// Rows or columns as threads take them: strips that become shorter towards the end, so that none waits long for another.
inline void for_each_strip(Index n, StripSizes sizes, const std::function<void(Index, Index)>& body) {
  std::vector<Index> cuts = {0};
  while (cuts.back() < n) {
    const Index left = n - cuts.back();
    cuts.push_back(cuts.back() + std::min(left, round_up(std::clamp<Index>(left / (2 * threads()), sizes.least, sizes.most), sizes.unit)));
  }
  parallel_for(std::ssize(cuts) - 1, [&](Index i) { body(cuts[static_cast<std::size_t>(i)], cuts[static_cast<std::size_t>(i) + 1]); });
}

}  // namespace stepzero::kernels
