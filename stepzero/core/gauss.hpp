#pragma once
// Expectations over centred Gaussians, by quadrature.
//
// Activations have a kink or a bend at 0, on a scale that is anything from 1/1000 to 1000 standard deviations. Gauss-Hermite
// nodes see neither: a ReLU costs them 1/n, and tanh'(50 Z) falls between two nodes. So expectations are cut at 0 and each
// half line is mapped by z = exp(t/2 - exp(-t)), whose nodes crowd at 0 on every scale: 1e-14 for kinked and smooth alike.
// A pair (U, V) is taken in polar coordinates, where both cuts u = 0 and v = 0 are fixed angles:
//   U = s_u R sin(a), V = s_v R sin(b), a + b = pi - acos(r) where the signs agree, acos(r) where they differ,
//   R with density R exp(-R^2/2) and the angle uniform. At correlation r = +-1 one of the two sectors is empty.
// Measured: tanh, erf, ReLU 1e-14 up to std 2 (pairs) and 10 (single); at std 10 pairs have 1e-9, at 100 1e-6.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "stepzero/core/error.hpp"

namespace stepzero {

// Nodes (ascending, symmetric bit for bit) and weights (sum 1) for Z ~ N(0, 1). Computed once per n, then shared.
class GaussHermite {
 public:
  static constexpr int max_nodes = 200;
  explicit GaussHermite(int n);  // 1 to max_nodes

  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] std::span<const double> nodes() const { return nodes_; }
  [[nodiscard]] std::span<const double> weights() const { return weights_; }

 private:
  std::span<const double> nodes_;
  std::span<const double> weights_;
};

// E f(Z) = sum_i weight_i (f(node_i) + f(-node_i)).
struct HalfLine {
  std::vector<double> nodes;
  std::vector<double> weights;  // sum 1/2
};
const HalfLine& half_line();

// A sector of the plane, its angle taken as 1: shares of the angle seen from either side, and radii.
struct Sector {
  std::vector<double> share;
  std::vector<double> rest;  // 1 - share
  std::vector<double> angle_weights;
  std::vector<double> radii;
  std::vector<double> radial_weights;  // of the density R exp(-R^2/2)
};
const Sector& sector();

// E f(std Z).
template <class F>
double expect(F&& f, double std) {
  const HalfLine& rule = half_line();
  double sum = 0;
  for (std::size_t i = 0; i < rule.nodes.size(); ++i) {
    const double x = std * rule.nodes[i];
    sum += rule.weights[i] * (f(x) + f(-x));
  }
  return sum;
}

// The same by Gauss-Hermite: exact for polynomials of degree up to 2n - 1, an independent witness for the rest.
template <class F>
double expect(F&& f, double std, const GaussHermite& rule) {
  double sum = 0;
  for (std::size_t i = 0; i < rule.size(); ++i) sum += rule.weights()[i] * f(std * rule.nodes()[i]);
  return sum;
}

// E f(U) g(V). A correlation that rounding carried past +-1 counts as +-1; a variance of 0 makes its variable 0.
template <class F, class G>
double expect_pair(F&& f, G&& g, double var_u, double var_v, double cov) {
  STEPZERO_CHECK(var_u >= 0 && var_v >= 0);
  constexpr double pi = std::numbers::pi;
  const double std_u = std::sqrt(var_u);
  const double std_v = std::sqrt(var_v);
  const double r = std_u > 0 && std_v > 0 ? std::clamp(cov / std_u / std_v, -1.0, 1.0) : 0.0;
  const double differ = std::atan2(std::sqrt((1 - r) * (1 + r)), r);
  const Sector& rule = sector();
  // u > 0 and v of the given sign, together with the opposite sector.
  const auto both = [&](double angle, double sign) {
    double sum = 0;
    for (std::size_t i = 0; angle > 0 && i < rule.share.size(); ++i) {
      const double u = std_u * std::sin(angle * rule.share[i]);
      const double v = sign * std_v * std::sin(angle * rule.rest[i]);
      double ring = 0;
      for (std::size_t j = 0; j < rule.radii.size(); ++j) {
        const double radius = rule.radii[j];
        ring += rule.radial_weights[j] * (f(radius * u) * g(radius * v) + f(-radius * u) * g(-radius * v));
      }
      sum += rule.angle_weights[i] * ring;
    }
    return sum * angle / (2 * pi);
  };
  return both(pi - differ, 1) + both(differ, -1);
}

inline constexpr int max_hermite = 60;

// a_k = E f(std Z) He_k(Z) / sqrt(k!), k = 0 .. k_max, so that f(std z) = sum_k a_k He_k(z) / sqrt(k!) and
// E f(std Z) f(std Z') = sum_k a_k^2 r^k at correlation r.
template <class F>
std::vector<double> hermite_coefficients(F&& f, double std, int k_max) {
  STEPZERO_CHECK(k_max >= 0 && k_max <= max_hermite);
  const HalfLine& rule = half_line();
  std::vector<double> out(static_cast<std::size_t>(k_max) + 1);
  for (std::size_t i = 0; i < rule.nodes.size(); ++i) {
    const double z = rule.nodes[i];
    const double right = rule.weights[i] * f(std * z);
    const double left = rule.weights[i] * f(-std * z);
    double previous = 0;
    double current = 1;
    for (std::size_t k = 0; k < out.size(); ++k) {
      out[k] += current * (k % 2 == 0 ? right + left : right - left);
      const double order = static_cast<double>(k);
      const double next = (z * current - std::sqrt(order) * previous) / std::sqrt(order + 1);
      previous = current;
      current = next;
    }
  }
  return out;
}

}  // namespace stepzero
