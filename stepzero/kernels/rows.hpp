#pragma once
// Sums along a row, in sixteen lanes so that the compiler may vectorise them without reordering anything:
// the same bits on every machine.
#include <array>

#include "stepzero/core/view.hpp"

namespace stepzero {

// sum_i f(i), i in [0, n)
template <class S, class F>
S row_sum(Index n, const F& f) {
  constexpr Index lanes = 16;
  std::array<S, lanes> acc;
  acc.fill(S(0));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (Index l = 0; l < lanes; ++l) acc[l] += f(i + l);
  }
  for (Index l = 0; i < n; ++i, ++l) acc[l] += f(i);
  for (Index width = lanes / 2; width > 0; width /= 2) {
    for (Index l = 0; l < width; ++l) acc[l] += acc[l + width];
  }
  return acc[0];
}

template <class S>
S dot_row(const S* a, const S* b, Index n) {
  return row_sum<S>(n, [&](Index i) { return a[i] * b[i]; });
}

}  // namespace stepzero
