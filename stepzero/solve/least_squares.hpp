#pragma once
// Damped least squares (Levenberg 1944, Marquardt 1963) for few unknowns and any number of residuals, that stay near their start at 0:
//
//     least |r(z)|^2 + pull^2 |z|^2,     J' J = V diag(s^2) V'                                                       (1)
//     dz = - sum_i v_i v_i' (J' r + pull^2 z) / (s_i^2 + pull^2 + lambda s_1^2)                                       (2)
//
// The pull is so small that it moves nothing that a residual feels; along directions that change no residual (s_i < least s_1: free) it
// alone counts, so that of all points that are as good the one nearest to 0 is taken. lambda falls after a step that helps and rises
// after one that does not. Derivatives are differences of one side; the residuals must be a smooth function (the same random numbers at
// every point).
#include <functional>
#include <optional>
#include <vector>

namespace stepzero::solve {

// Empty where the function has no value.
using Residuals = std::function<std::vector<double>(const std::vector<double>& z)>;

struct LeastSquaresOptions {
  int most_steps = 20;
  double difference = 0.02;
  double pull = 0.01;
  double least = 1e-3;    // a direction whose singular value is below this share of the largest is free
  double longest = 1.5;   // step, of one unknown
  double enough = 2e-3;   // a step that takes less than this share of the sum of squares is the last
  double nothing = 1e-9;  // a sum of squares that counts as 0
};

struct FreeDirection {
  std::vector<double> of;  // a unit vector over the unknowns
  double effect = 0;       // the length of the change of all residuals for a step of 1
};

struct LeastSquaresResult {
  std::vector<double> z;
  std::vector<FreeDirection> free;
  double before = 0, after = 0;  // sum of squares
  int steps = 0, evaluations = 0;
};

// Empty where the function has no value at the start. Derivatives of one point are made side by side.
std::optional<LeastSquaresResult> least_squares(const Residuals& residuals, std::vector<double> start,
                                                const LeastSquaresOptions& options = {});

}  // namespace stepzero::solve
