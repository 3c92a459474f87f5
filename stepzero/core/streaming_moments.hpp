#pragma once
// Streaming statistics that do not cancel, with the same bits on any machine.
//
// A matrix is cut into runs: at most 4096 neighbours of one row. A run is summed in 16 lanes of double, element i in
// lane i mod 16, and the lanes are added in a fixed tree; SIMD code of any width can follow that order. Runs are merged
// by Chan's rule in a balanced tree over the runs of a row, then over rows, whoever computed them.
//
// Accuracy   A run takes m2 = sum x^2 - (sum x)^2/n only when that loses less than a factor of 64; otherwise (mean >> std)
//            it is read again around its mean. So m2 and with it variance are right to 1e-11 (worst case; 1e-14 is usual),
//            and the mean to 1e-13 of the root mean square. Float input can neither overflow nor underflow;
//            doubles beyond 1e154 give m2 = inf, and below 1e-154 their squares are lost.
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "stepzero/core/view.hpp"

namespace stepzero {

struct Moments {
  std::uint64_t count = 0;  // finite values; NaN and Inf are counted below and take no part in anything else
  std::uint64_t nans = 0;
  std::uint64_t infs = 0;
  std::uint64_t zeros = 0;
  double mean = 0;
  double m2 = 0;  // sum of squared deviations from the mean
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();

  // Of the population (divided by count); NaN when there is nothing to average.
  [[nodiscard]] double variance() const { return m2 / static_cast<double>(count); }
  [[nodiscard]] double std() const { return std::sqrt(variance()); }
  [[nodiscard]] double second_moment() const { return variance() + mean * mean; }
  [[nodiscard]] double sum_squares() const { return m2 + static_cast<double>(count) * mean * mean; }

  void merge(const Moments& other);
  bool operator==(const Moments&) const = default;
};

template <class S>  // float, double
Moments moments(View<const S> x);

// Merges leaves, given from left to right, as a balanced binary tree would; keeps only the open branches.
class MomentsTree {
 public:
  void push(const Moments& leaf);
  [[nodiscard]] Moments finish() const;

 private:
  std::vector<Moments> open_;  // complete subtrees, largest first
  std::uint64_t leaves_ = 0;
};

Moments merge_tree(std::span<const Moments> leaves);

// What follows is shared with the SIMD twin in kernels/statistics.

inline constexpr Index moment_lanes = 16;
inline constexpr Index moment_run = 4096;  // 16 kB of float: a second reading finds it in the first cache

struct RunSums {
  double sum = 0;
  double squares = 0;
  double min = 0;
  double max = 0;
  std::uint64_t zeros = 0;
};

struct CentredSums {
  double sum = 0;      // of x - pivot
  double squares = 0;  // of (x - pivot)^2
};

// n from 1 to moment_run.
template <class S>
RunSums run_sums(const S* x, Index n);
template <class S>
CentredSums centred_sums(const S* x, Index n, double pivot);

template <class S>
struct RunKernels {
  RunSums (*sums)(const S*, Index) = run_sums<S>;
  CentredSums (*centred)(const S*, Index, double) = centred_sums<S>;
};

// The moments of a run whose sums are known; reads it again where the sums do not suffice.
template <class S>
Moments run_moments(const S* x, Index n, const RunSums& sums, const RunKernels<S>& kernels);

// Lane i and lane i + 8, then i + 4, i + 2, i + 1: what halving a SIMD register does.
inline double add_lanes(double* lane) {
  for (int i = 0; i < 8; ++i) lane[i] += lane[i + 8];
  for (int i = 0; i < 4; ++i) lane[i] += lane[i + 4];
  return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

}  // namespace stepzero
