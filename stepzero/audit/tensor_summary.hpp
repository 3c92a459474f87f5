#pragma once
// What is kept of a tensor's numbers, or of a part of them: moments, quantiles and a short distribution function.
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "stepzero/audit/pattern_counts.hpp"
#include "stepzero/kernels/census.hpp"

namespace stepzero {

struct Knot {
  double edge = 0;          // a number between two that can be stored
  std::uint64_t below = 0;  // how many are smaller
};

struct Summary {
  std::uint64_t count = 0;  // finite ones
  std::uint64_t zeros = 0, subnormals = 0, nans = 0, infs = 0;
  double mean = 0, std = 0;
  double skew = 0, kurtosis = 0;  // of a normal: 0 and 3; 0 where nothing varies
  double min = 0, max = 0;
  static constexpr std::array kLevels = {0.001, 0.01, 0.25, 0.5, 0.75, 0.99, 0.999};
  std::array<double, kLevels.size()> quantiles = {};
  std::vector<Knot> knots;  // some sixty, each a sixtieth of the numbers further

  [[nodiscard]] bool constant() const { return count > 0 && min == max; }
  [[nodiscard]] double largest() const;  // in size
};

// Counts of the 16-bit patterns of all numbers: of bf16, of f16, or of the upper halves of floats (`halves`).
enum class Patterns : std::uint8_t { bf16, f16, upper_halves };

// Exact for 16-bit types; of floats the moments come from `sums`, and knots and quantiles are as fine as 7 bits after
// the first.
Summary summarise(Patterns patterns, const PatternCounts& counts, const kernels::PowerSums* sums = nullptr);

// Moments alone.
Summary summarise(const kernels::PowerSums& sums);

}  // namespace stepzero
