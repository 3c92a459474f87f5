#pragma once
// Mean and variance of numbers that come one by one, Welford's way: nothing cancels.
#include <cmath>

namespace stepzero {

struct Running {
  double count = 0;
  double mean = 0;
  double deviations = 0;  // sum of squared deviations from the mean

  void add(double x) {
    const double delta = x - mean;
    mean += delta / ++count;
    deviations += delta * (x - mean);
  }
  [[nodiscard]] double variance() const { return count > 1 ? deviations / (count - 1) : 0; }    // of what is sampled
  [[nodiscard]] double error() const { return count > 0 ? std::sqrt(variance() / count) : 0; }  // standard error of the mean
};

}  // namespace stepzero
