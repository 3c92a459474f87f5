#pragma once
// The decrease of the loss over the rate, from a few rates.
#include <optional>
#include <vector>

namespace stepzero {

// Which of the factors that are asked about (ascending) are walked: every second and the ends, up to where the first order is so many times
// the loss that nothing is known of what comes of it. first_order: of the loss at factor 1.
std::vector<double> walked_factors(const std::vector<double>& asked, double first_order, double loss);

// What the loss decreases by at any factor from the least that was walked down and up to the largest: D(f) = slope f s(f), where s is
// linear in f below, and (1 + f / knee) s a cubic in ln f through four of the factors between; s is 1/2 at the knee, and falls as 1 / (1 +
// f / knee) where the loss saturates.
class DecreaseCurve {
 public:
  DecreaseCurve(double slope, const std::vector<double>& factors, const std::vector<double>& decreases);
  [[nodiscard]] std::optional<double> at(double factor) const;

 private:
  double slope_, knee_ = 1;
  std::vector<double> place_, value_;  // ln f, (1 + f / knee) s
};

}  // namespace stepzero
