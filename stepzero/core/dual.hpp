#pragma once
// Dual numbers: a value and its derivative along one direction, carried through any formula.
//
//     (a + a' e)(b + b' e) = ab + (a b' + a' b) e,   e^2 = 0,      f(a + a' e) = f(a) + f'(a) a' e
//
// The same templates that ship in float run here, so J v is the exact derivative of the shipped formula,
// and a hand-derived backward can be held against it to rounding (law L1).
#include <cmath>
#include <compare>

namespace stepzero {

struct Dual {
  double value = 0;
  double slope = 0;

  Dual() = default;
  constexpr Dual(double v) : value(v) {}  // NOLINT: a constant is a dual with slope 0
  constexpr Dual(double v, double s) : value(v), slope(s) {}

  Dual& operator+=(Dual o) { return *this = {value + o.value, slope + o.slope}; }
  Dual& operator-=(Dual o) { return *this = {value - o.value, slope - o.slope}; }
  Dual& operator*=(Dual o) { return *this = {value * o.value, value * o.slope + slope * o.value}; }
  Dual& operator/=(Dual o) {
    const double q = value / o.value;
    return *this = {q, (slope - q * o.slope) / o.value};
  }
  Dual operator-() const { return {-value, -slope}; }

  friend Dual operator+(Dual a, Dual b) { return a += b; }
  friend Dual operator-(Dual a, Dual b) { return a -= b; }
  friend Dual operator*(Dual a, Dual b) { return a *= b; }
  friend Dual operator/(Dual a, Dual b) { return a /= b; }
  friend auto operator<=>(Dual a, Dual b) { return a.value <=> b.value; }
  friend bool operator==(Dual a, Dual b) { return a.value == b.value; }
};

inline Dual exp(Dual x) {
  const double e = std::exp(x.value);
  return {e, e * x.slope};
}
inline Dual log(Dual x) { return {std::log(x.value), x.slope / x.value}; }
inline Dual sqrt(Dual x) {
  const double r = std::sqrt(x.value);
  return {r, x.slope / (2 * r)};
}
inline Dual tanh(Dual x) {
  const double t = std::tanh(x.value);
  return {t, (1 - t * t) * x.slope};
}
inline Dual erf(Dual x) {
  constexpr double two_over_sqrt_pi = 1.1283791670955126;
  return {std::erf(x.value), two_over_sqrt_pi * std::exp(-x.value * x.value) * x.slope};
}

// The plain number behind a scalar: what comparisons, statistics and branches look at.
inline double value_of(double x) { return x; }
inline double value_of(Dual x) { return x.value; }

}  // namespace stepzero
