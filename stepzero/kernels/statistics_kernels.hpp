#pragma once
// The inner loops of statistics.cpp: plain templates, and for float their SIMD twins with the same bits.
#include "stepzero/core/streaming_moments.hpp"

namespace stepzero {

inline constexpr Index group_rows = 4;  // rows that share one visit to the vector of totals

template <class S>
struct StatisticsKernels {
  RunKernels<S> run;
  double (*squares)(const S* x, Index n);  // sum of squares, n up to moment_run
  // total += sum over group_rows rows of row * scale, the sum over rows in S.
  void (*add_units)(double* total, const S* const* rows, const S* scales, Index n);
};

template <class S>
StatisticsKernels<S> plain_kernels();

// The best the machine has. Double has only the plain ones: it is the scalar of tests, not of the hot path.
template <class S>
StatisticsKernels<S> best_kernels();

}  // namespace stepzero
