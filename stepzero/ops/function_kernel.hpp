#pragma once
// The kernels of elementwise functions: E f(u) f(v) for a Gaussian pair, for all pairs of tokens at once.
//
//     f(s z) = sum_k c_k(s) h_k(z),  h_k the orthonormal Hermite polynomials
//     E f(u) f(v) = sum_k c_k(s_t) c_k(s_s) rho^k
//
// cut at k_max; what the cut leaves of E f(u)^2 is carried at rho^(k_max+1), which is exact at rho = 1. Functions with a
// kink converge slowly and have closed forms (arc-cosine kernels).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "stepzero/core/gauss.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

// Hermite coefficients of f at each token's standard deviation; the last column is the root of what the cut leaves.
template <class F>
Matrix hermite_table(const Kernel& K, const F& f) {
  constexpr int k_max = 32;
  Matrix c(K.tokens(), k_max + 2);
  double last = -1;
  for (Index t = 0; t < K.tokens(); ++t) {
    const double std = std::sqrt(std::max(K(t, t), 0.0));
    if (t > 0 && std == last) {
      std::copy_n(c.view().row(t - 1), k_max + 2, c.view().row(t));
      continue;
    }
    last = std;
    const auto coefficients = hermite_coefficients(f, std, k_max);
    double rest = expect([&](double x) { return f(x) * f(x); }, std);
    for (int k = 0; k <= k_max; ++k) {
      c(t, k) = coefficients[static_cast<std::size_t>(k)];
      rest -= c(t, k) * c(t, k);
    }
    c(t, k_max + 1) = std::sqrt(std::max(rest, 0.0));
  }
  return c;
}

inline double correlation(const Kernel& K, Index t, Index s) {
  const double size = std::sqrt(K(t, t) * K(s, s));
  return size > 0 ? std::clamp(K(t, s) / size, -1.0, 1.0) : 0;
}

// E f(u_t) f(u_s) for all pairs
template <class F>
Kernel function_kernel(const Kernel& K, const F& f) {
  const Matrix c = hermite_table(K, f);
  return Kernel::from(K.tokens(), [&](Index t, Index s) {
    const double rho = t == s ? 1 : correlation(K, t, s);
    const double* a = c.view().row(t);
    const double* b = c.view().row(s);
    double sum = 0;
    for (Index k = c.cols(); k-- > 0;) sum = sum * rho + a[k] * b[k];
    return sum;
  });
}

template <class F>
Moment push_function(const PushDoor& p, const F& f) {
  const Moment& x = *p.x[0];
  Moment y;
  y.K = function_kernel(x.K, f);
  y.mean.resize(static_cast<std::size_t>(p.batch.tokens()));
  double last = -1, mean = 0;
  for (Index t = 0; t < p.batch.tokens(); ++t) {
    const double std = std::sqrt(std::max(x.K(t, t), 0.0));
    if (std != last) mean = expect(f, std);
    last = std;
    y.mean[static_cast<std::size_t>(t)] = mean;
  }
  y.noise = x.noise;
  return y;
}

template <class F>
Pulled pull_function(const PullDoor& p, const F& slope) {
  const Kernel E = function_kernel(p.x[0]->K, slope);
  return {{{Kernel::from(p.batch.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) * E(t, s); })}}, {}};
}

// Closed forms, of variances a, b and covariance c; theta is the angle between the two tokens.
inline double angle(double a, double b, double c) {
  const double size = std::sqrt(a * b);
  return size > 0 ? std::acos(std::clamp(c / size, -1.0, 1.0)) : std::numbers::pi / 2;
}
inline double step_kernel(double a, double b, double c) { return (std::numbers::pi - angle(a, b, c)) / (2 * std::numbers::pi); }
inline double relu_kernel(double a, double b, double c) {
  const double theta = angle(a, b, c);
  return std::sqrt(a * b) * (std::sin(theta) + (std::numbers::pi - theta) * std::cos(theta)) / (2 * std::numbers::pi);
}
inline double relu_squared_kernel(double a, double b, double c) {
  const double theta = angle(a, b, c);
  const double cos = std::cos(theta);
  return a * b * (3 * std::sin(theta) * cos + (std::numbers::pi - theta) * (1 + 2 * cos * cos)) / (2 * std::numbers::pi);
}
inline double relu_mean(double variance) { return std::sqrt(variance / (2 * std::numbers::pi)); }
inline double relu_squared_mean(double variance) { return variance / 2; }

inline Moment push_closed(const PushDoor& p, double (*kernel)(double, double, double), double (*mean)(double)) {
  const Kernel& K = p.x[0]->K;
  Moment y;
  y.K = Kernel::from(K.tokens(), [&](Index t, Index s) { return kernel(K(t, t), K(s, s), K(t, s)); });
  y.mean.resize(static_cast<std::size_t>(K.tokens()));
  for (Index t = 0; t < K.tokens(); ++t) y.mean[static_cast<std::size_t>(t)] = mean(K(t, t));
  y.noise = p.x[0]->noise;
  return y;
}

inline Pulled pull_closed(const PullDoor& p, double (*slope)(double, double, double)) {
  const Kernel& K = p.x[0]->K;
  return {{{Kernel::from(K.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) * slope(K(t, t), K(s, s), K(t, s)); })}}, {}};
}

}  // namespace stepzero
