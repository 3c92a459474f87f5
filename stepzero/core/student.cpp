#include "stepzero/core/student.hpp"

#include <cmath>
#include <initializer_list>

namespace stepzero {

namespace {

// The regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz), for x < (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double tiny = 1e-300;
  const auto kept = [](double v) { return std::abs(v) < tiny ? tiny : v; };
  double c = 1;
  double d = 1 / kept(1 - (a + b) * x / (a + 1));
  double f = d;
  for (int m = 1; m <= 500; ++m) {
    const double k = m;
    for (const double term :
         {k * (b - k) * x / ((a + 2 * k - 1) * (a + 2 * k)), -(a + k) * (a + b + k) * x / ((a + 2 * k) * (a + 2 * k + 1))}) {
      d = 1 / kept(1 + term * d);
      c = kept(1 + term / c);
      f *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return front * f / a;
}

double incomplete_beta(double x, double a, double b) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  return x < (a + 1) / (a + b + 2) ? beta_fraction(x, a, b) : 1 - beta_fraction(1 - x, b, a);
}

}  // namespace

double student_tail(double x, double freedom) { return incomplete_beta(freedom / (freedom + x * x), freedom / 2, 0.5); }

double student_quantile(double share, double freedom) {
  double low = 0, high = 1;
  while (student_tail(high, freedom) > share && high < 1e12) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, freedom) > share ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace stepzero
