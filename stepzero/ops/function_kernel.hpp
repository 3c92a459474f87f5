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
#include "stepzero/kernels/phi.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

inline constexpr int hermite_cut = 32;

// Hermite coefficients of f at one standard deviation; the last is the root of what the cut leaves.
template <class F>
std::vector<double> hermite_row(const F& f, double std) {
  std::vector<double> c = hermite_coefficients(f, std, hermite_cut);
  double rest = expect([&](double x) { return f(x) * f(x); }, std);
  for (const double x : c) rest -= x * x;
  c.push_back(std::sqrt(std::max(rest, 0.0)));
  return c;
}

// The coefficients at each token's standard deviation. They are smooth in it, and after a norm all tokens have nearly
// the same: a few Chebyshev nodes over the range serve them all.
template <class F>
Matrix hermite_table(const Kernel& K, const F& f) {
  std::vector<double> std(static_cast<std::size_t>(K.tokens()));
  for (Index t = 0; t < K.tokens(); ++t) std[static_cast<std::size_t>(t)] = std::sqrt(std::max(K(t, t), 0.0));
  const auto [low, high] = std::ranges::minmax(std);
  const bool wide = !(low > 0) || high > 1.5 * low;
  const std::size_t nodes = wide ? std.size() : std::min<std::size_t>(std.size(), high < 1.01 * low ? 4 : 9);
  Matrix c(K.tokens(), hermite_cut + 2);
  if (nodes == std.size()) {
    for (Index t = 0; t < K.tokens(); ++t) std::ranges::copy(hermite_row(f, std[static_cast<std::size_t>(t)]), c.view().row(t));
    return c;
  }
  std::vector<double> at, weight;
  std::vector<std::vector<double>> rows;
  for (std::size_t i = 0; i < nodes; ++i) {
    const double angle = std::numbers::pi * (static_cast<double>(i) + 0.5) / static_cast<double>(nodes);
    at.push_back((low + high) / 2 + (high - low) / 2 * std::cos(angle));
    weight.push_back((i % 2 == 0 ? 1 : -1) * std::sin(angle));
    rows.push_back(hermite_row(f, at.back()));
  }
  for (Index t = 0; t < K.tokens(); ++t) {  // barycentric interpolation
    double* to = c.view().row(t);
    std::fill_n(to, hermite_cut + 2, 0.0);
    double total = 0;
    for (std::size_t i = 0; i < nodes; ++i) {
      const double distance = std[static_cast<std::size_t>(t)] - at[i];
      if (std::abs(distance) < 1e-14 * high) {
        std::ranges::copy(rows[i], to);
        total = 1;
        break;
      }
      const double w = weight[i] / distance;
      total += w;
      for (Index k = 0; k < hermite_cut + 2; ++k) to[k] += w * rows[i][static_cast<std::size_t>(k)];
    }
    for (Index k = 0; k < hermite_cut + 2; ++k) to[k] /= total;
  }
  return c;
}

// K_ts / sqrt(K_tt K_ss), 0 where a token is zero
class Correlation {
 public:
  explicit Correlation(const Kernel& K) : K_(K) {
    for (Index t = 0; t < K.tokens(); ++t) inverse_.push_back(K(t, t) > 0 ? 1 / std::sqrt(K(t, t)) : 0);
  }
  double operator()(Index t, Index s) const {
    return std::clamp(K_(t, s) * inverse_[static_cast<std::size_t>(t)] * inverse_[static_cast<std::size_t>(s)], -1.0, 1.0);
  }

  // sum over s from `start` to before t of rho (1 - (1 - rho^2)/2 shrink)
  [[nodiscard]] double row_sum(Index t, Index start, double shrink) const {
    const Kernel::Row row = K_.row(t);
    const double* const inverse = inverse_.data();
    const double own = inverse[t];
    return in_eight(start, t, [=](Index s) {
      const double rho = row[s] * inverse[s] * own;
      return rho * (1 - (1 - rho * rho) / 2 * shrink);
    });
  }

 private:
  const Kernel& K_;
  std::vector<double> inverse_;
};

// E f(u_t) f(u_s) for all pairs, given the table of f
inline Kernel function_kernel(const Kernel& K, const Matrix& c) {
  const Index tokens = K.tokens();
  const Correlation correlation(K);
  Matrix by_power(c.cols(), tokens + 16);  // so that a row of the result is made by whole rows; padded
  std::fill_n(by_power.data(), by_power.size(), 0.0);
  for (Index t = 0; t < tokens; ++t) {
    for (Index k = 0; k < c.cols(); ++k) by_power(k, t) = c(t, k);
  }
  double most = 0;
  for (Index i = 0; i < c.size(); ++i) most = std::max(most, std::abs(c.data()[i]));
  Index top = c.cols();  // powers above add nothing: a smooth function, and its coefficients enter as squares
  const auto nothing = [&](Index k) {
    return std::ranges::all_of(std::span(by_power.view().row(k), static_cast<std::size_t>(tokens)),
                               [&](double x) { return std::abs(x) <= 1e-6 * most; });
  };
  while (top > 1 && nothing(top - 1)) --top;
  return Kernel::from_rows(tokens, [&](Index t, double* __restrict row) {
    for (Index s = 0; s <= t; ++s) row[s] = correlation(t, s);
    row[t] = 1;
    for (Index s0 = 0; s0 <= t; s0 += 16) {  // Horner for sixteen tokens at once
      double rho[16], sum[16] = {};
      const Index n = std::min<Index>(16, t + 1 - s0);
      std::copy_n(row + s0, n, rho);
      std::fill(rho + n, rho + 16, 0.0);
      for (Index k = top; k-- > 0;) {
        const double a = c(t, k);
        const double* b = by_power.view().row(k) + s0;
        for (Index i = 0; i < 16; ++i) sum[i] = sum[i] * rho[i] + a * b[i];
      }
      std::copy_n(sum, n, row + s0);
    }
  });
}

// What f makes of the spread of the mean square, at the mean standard deviation.
template <class F>
void carry_spread(const Moment& x, const F& f, Moment& y) {
  const double std = std::sqrt(std::max(x.K.trace() / static_cast<double>(x.K.tokens()), 0.0));
  const double square = expect([&](double u) { return f(u) * f(u); }, std);
  if (!(square > 0)) return;
  const double fourth = expect([&](double u) { return f(u) * f(u) * f(u) * f(u); }, std);
  const double near = expect([&](double u) { return f(u) * f(u); }, 1.01 * std);
  const double slope = std::log(near / square) / (2 * std::log(1.01));  // d ln E f^2 / d ln E x^2
  y.drift = slope * slope * x.drift;
  y.token_drift = slope * slope * x.token_drift;
  y.lone = slope * slope * x.lone;
  y.sampling = fourth / (square * square) - 1;
}

template <class F>
Moment push_function(const PushDoor& p, const F& f) {
  const Moment& x = *p.x[0];
  Moment y;
  const Matrix c = hermite_table(x.K, f);
  y.K = function_kernel(x.K, c);
  for (Index t = 0; t < x.K.tokens(); ++t) y.mean.push_back(c(t, 0));  // h_0 = 1
  y.noise = x.noise;
  y.swing = x.swing;
  carry_spread(x, f, y);
  return y;
}

template <class F>
Pulled pull_function(const PullDoor& p, const F& slope) {
  const Kernel E = function_kernel(p.x[0]->K, hermite_table(p.x[0]->K, slope));
  return {{{Kernel::from(E.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) * E(t, s); })}}, {}};
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
// x+ - 0.01 (-x)+ = 0.01 x + 0.99 x+, and E u v+ = c/2
inline double leaky_relu_kernel(double a, double b, double c) {
  constexpr double l = LeakyRelu::leak;
  return l * c + (1 - l) * (1 - l) * relu_kernel(a, b, c);
}
inline double leaky_step_kernel(double a, double b, double c) {
  constexpr double l = LeakyRelu::leak;
  return l + (1 - l) * (1 - l) * step_kernel(a, b, c);
}
inline double relu_mean(double variance) { return std::sqrt(variance / (2 * std::numbers::pi)); }
inline double relu_squared_mean(double variance) { return variance / 2; }
inline double leaky_relu_mean(double variance) { return (1 - LeakyRelu::leak) * relu_mean(variance); }

template <class F>
Moment push_closed(const PushDoor& p, const F& f, double (*kernel)(double, double, double), double (*mean)(double)) {
  const Kernel& K = p.x[0]->K;
  Moment y;
  y.K = Kernel::from(K.tokens(), [&](Index t, Index s) { return kernel(K(t, t), K(s, s), K(t, s)); });
  y.mean.resize(static_cast<std::size_t>(K.tokens()));
  for (Index t = 0; t < K.tokens(); ++t) y.mean[static_cast<std::size_t>(t)] = mean(K(t, t));
  y.noise = p.x[0]->noise;
  y.swing = p.x[0]->swing;
  carry_spread(*p.x[0], f, y);
  return y;
}

inline Pulled pull_closed(const PullDoor& p, double (*slope)(double, double, double)) {
  const Kernel& K = p.x[0]->K;
  return {{{Kernel::from(K.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) * slope(K(t, t), K(s, s), K(t, s)); })}}, {}};
}

// For f near a function g of closed form, which has the same kink: the closed form, and the difference by the cut sums.
template <class F, class G>
Moment push_near(const PushDoor& p, const F& f, const G& g, double (*closed)(double, double, double)) {
  Moment y = push_function(p, f);
  const Kernel& K = p.x[0]->K;
  const Kernel R = function_kernel(K, hermite_table(K, g));
  y.K = Kernel::from(K.tokens(), [&](Index t, Index s) { return y.K(t, s) + closed(K(t, t), K(s, s), K(t, s)) - R(t, s); });
  return y;
}

template <class F, class G>
Pulled pull_near(const PullDoor& p, const F& slope, const G& g, double (*closed)(double, double, double)) {
  const Kernel& K = p.x[0]->K;
  const Kernel E = function_kernel(K, hermite_table(K, slope));
  const Kernel R = function_kernel(K, hermite_table(K, g));
  return {{{Kernel::from(K.tokens(),
                         [&](Index t, Index s) { return p.dy.G(t, s) * (E(t, s) + closed(K(t, t), K(s, s), K(t, s)) - R(t, s)); })}},
          {}};
}

}  // namespace stepzero
