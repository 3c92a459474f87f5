#pragma once
// The kernels of elementwise functions: E f(u) f(v) for a Gaussian pair, for all pairs of tokens at once.
//
//     f(s z) = sum_k c_k(s) h_k(z),  h_k the orthonormal Hermite polynomials
//     E f(u) f(v) = sum_k c_k(s_t) c_k(s_s) rho^k
//
// cut at k_max; what the cut leaves of E f(u)^2 is carried at rho^(k_max+1), which is exact at rho = 1. Functions with a
// kink converge slowly and have closed forms (arc-cosine kernels).
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <tuple>
#include <type_traits>
#include <utility>

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

// The parameter of a function that has one. What is cached of functions is found by type and this number.
template <class F>
double number_of(const F& f) {
  if constexpr (requires { f.number; }) {
    return f.number;
  } else {
    static_assert(std::is_empty_v<F>, "a function with a state needs `number`: what is kept of it is found by type and number");
    return 0;
  }
}

// Draws of kernels ask for nearly the same tables again and again: those of standard deviations exp(i / 50) are cached.
inline constexpr double grid_steps = 50;
template <class F, class Make>
const auto& on_grid(const F& f, int i, const Make& make) {
  thread_local std::map<std::pair<double, int>, decltype(make(1.0))> kept;
  const auto [at, fresh] = kept.try_emplace({number_of(f), i});
  if (fresh) at->second = make(std::exp(i / grid_steps));
  return at->second;
}

// The coefficients at each token's standard deviation, by cubic interpolation between those of the grid.
template <class F>
Matrix hermite_table_by_grid(const Kernel& K, const F& f) {
  Matrix c(K.tokens(), hermite_cut + 2);
  for (Index t = 0; t < K.tokens(); ++t) {
    double* to = c.view().row(t);
    std::fill_n(to, hermite_cut + 2, 0.0);
    if (!(K(t, t) > 0)) {
      std::ranges::copy(hermite_row(f, 0), to);
      continue;
    }
    const double x = std::log(K(t, t)) / 2 * grid_steps, floor = std::floor(x), u = x - floor;
    const std::array<double, 4> weight = {-u * (u - 1) * (u - 2) / 6, (u + 1) * (u - 1) * (u - 2) / 2, -(u + 1) * u * (u - 2) / 2,
                                          (u + 1) * u * (u - 1) / 6};
    for (int i = 0; i < 4; ++i) {
      const auto& row = on_grid(f, static_cast<int>(floor) + i - 1, [&](double std) { return hermite_row(f, std); });
      for (std::size_t k = 0; k < row.size(); ++k) to[k] += weight[static_cast<std::size_t>(i)] * row[k];
    }
  }
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

// The standard deviation over draws of the cosine of two tokens, before the channels of x are drawn. A kernel is a curved function of
// the cosine: its mean over draws is, to second order, the mean of its values at rho - blur and rho + blur.
struct Blur {
  double noise = 0, swing = 0;
  Blur() = default;
  explicit Blur(const DownWire& x) : noise(x.pair_noise()), swing(x.f.swing) {}
  [[nodiscard]] double operator()(double rho) const {
    return std::min((1 - rho) * std::sqrt(noise * (1 + rho) * (1 + rho) + swing), 1 - std::abs(rho));
  }
};

// E f(u_t) f(u_s) for all pairs, given the table of f
inline Kernel function_kernel(const Kernel& K, const Blur& blur, const Matrix& c) {
  const Index tokens = K.tokens();
  const Correlation correlation(K);
  Matrix by_power(c.cols(), tokens + 16);  // so that a row of the result is made by whole rows; padded
  std::fill_n(by_power.data(), by_power.size(), 0.0);
  for (Index t = 0; t < tokens; ++t) {
    for (Index k = 0; k < c.cols(); ++k) by_power(k, t) = c(t, k);
  }
  double most = 0;
  for (Index i = 0; i < c.size(); ++i) most = std::max(most, std::abs(c.data()[i]));
  Index top = c.cols();  // higher powers are negligible: the function is smooth, and coefficients enter as squares
  const auto nothing = [&](Index k) {
    return std::ranges::all_of(std::span(by_power.view().row(k), static_cast<std::size_t>(tokens)),
                               [&](double c_k) { return std::abs(c_k) <= 1e-6 * most; });
  };
  while (top > 1 && nothing(top - 1)) --top;
  return Kernel::from_rows(tokens, [&](Index t, double* __restrict row) {
    for (Index s = 0; s <= t; ++s) row[s] = correlation(t, s);
    row[t] = 1;
    for (Index s0 = 0; s0 <= t; s0 += 16) {  // Horner for sixteen tokens at once
      double rho[16], above[16], sum[16] = {}, other[16] = {};
      const Index n = std::min<Index>(16, t + 1 - s0);
      std::copy_n(row + s0, n, rho);
      std::fill(rho + n, rho + 16, 0.0);
      for (Index i = 0; i < 16; ++i) {
        const double by = blur(rho[i]);
        above[i] = rho[i] + by;
        rho[i] -= by;
      }
      for (Index k = top; k-- > 0;) {
        const double a = c(t, k) / 2;
        const double* b = by_power.view().row(k) + s0;
        for (Index i = 0; i < 16; ++i) {
          const double both = a * b[i];
          sum[i] = sum[i] * rho[i] + both;
          other[i] = other[i] * above[i] + both;
        }
      }
      for (Index i = 0; i < 16; ++i) sum[i] += other[i];
      std::copy_n(sum, n, row + s0);
    }
  });
}

inline double mean_std(const Kernel& K) { return std::sqrt(std::max(K.trace() / static_cast<double>(K.tokens()), 0.0)); }

// E f^2 at a standard deviation, and d ln E f^2 / d ln E x^2
template <class F>
std::pair<double, double> square_and_growth(const F& f, double std) {
  const auto square = [&](double u) { return f(u) * f(u); };
  const double here = expect(square, std);
  return {here, here > 0 ? std::log(expect(square, 1.01 * std) / here) / (2 * std::log(1.01)) : 0};
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

// of all pairs
using ClosedForm = double (*)(double, double, double);
inline Kernel closed_kernel(const Kernel& K, const Blur& blur, ClosedForm kernel) {
  const Correlation correlation(K);
  return Kernel::from(K.tokens(), [&](Index t, Index s) {
    const double a = K(t, t), b = K(s, s), c = K(t, s);
    const double by = t == s ? 0 : std::sqrt(a * b) * blur(correlation(t, s));
    return (kernel(a, b, c - by) + kernel(a, b, c + by)) / 2;
  });
}

// A function of kernels/phi.hpp and its slope, as types.
template <class Phi>
struct ValueOf {
  double operator()(double x) const { return Phi::value(x); }
};
template <class Phi>
struct SlopeOf {
  double operator()(double x) const { return Phi::slope(x); }
};

// Functions whose kernels have a closed form: `kernel` is E f(u) f(v), `mean` is E f(u) by the variance. Or that have the same kink as
// such a function, `Near`: the series then makes up the difference only.
template <class F>
struct ClosedFunction {};
template <>
struct ClosedFunction<ValueOf<Relu>> {
  static constexpr ClosedForm kernel = relu_kernel;
  static constexpr double (*mean)(double) = relu_mean;
};
template <>
struct ClosedFunction<SlopeOf<Relu>> {
  static constexpr ClosedForm kernel = step_kernel;
};
template <>
struct ClosedFunction<ValueOf<ReluSquared>> {
  static constexpr ClosedForm kernel = relu_squared_kernel;
  static constexpr double (*mean)(double) = relu_squared_mean;
};
template <>
struct ClosedFunction<SlopeOf<ReluSquared>> {
  static constexpr ClosedForm kernel = [](double a, double b, double c) { return 4 * relu_kernel(a, b, c); };
};
template <>
struct ClosedFunction<ValueOf<LeakyRelu>> {
  static constexpr ClosedForm kernel = leaky_relu_kernel;
  static constexpr double (*mean)(double) = leaky_relu_mean;
};
template <>
struct ClosedFunction<SlopeOf<LeakyRelu>> {
  static constexpr ClosedForm kernel = leaky_step_kernel;
};
template <>
struct ClosedFunction<ValueOf<Relu6>> {
  using Near = ValueOf<Relu>;
};
template <>
struct ClosedFunction<SlopeOf<Relu6>> {
  using Near = SlopeOf<Relu>;
};

// E f(u_t) f(u_s) for all pairs of a Gaussian channel of kernel K, and E f(u_t).
struct FunctionMoments {
  Kernel K;
  std::vector<double> mean;  // empty for slopes with a closed form, where it is not needed
};
template <class F>
FunctionMoments function_moments(const F& f, const Kernel& K, const Blur& blur, const Draws& draws) {
  using Closed = ClosedFunction<F>;
  FunctionMoments out;
  if constexpr (requires { Closed::kernel; }) {
    out.K = closed_kernel(K, blur, Closed::kernel);
    if constexpr (requires { Closed::mean; }) {
      for (Index t = 0; t < K.tokens(); ++t) out.mean.push_back(Closed::mean(K(t, t)));
    }
  } else {
    const Matrix c = draws.of_one() ? hermite_table_by_grid(K, f) : hermite_table(K, f);
    out.K = function_kernel(K, blur, c);
    for (Index t = 0; t < K.tokens(); ++t) out.mean.push_back(c(t, 0));  // h_0 = 1
    if constexpr (requires { typename Closed::Near; }) {
      using Near = typename Closed::Near;
      const Kernel exact = closed_kernel(K, blur, ClosedFunction<Near>::kernel), cut = function_kernel(K, blur, hermite_table(K, Near()));
      out.K = Kernel::from(K.tokens(), [&, series = out.K](Index t, Index s) { return series(t, s) + exact(t, s) - cut(t, s); });
    }
  }
  return out;
}

template <class F>
Moment push_function(const PushDoor& p, const F& f, const Blur& blur) {
  FunctionMoments m = function_moments(f, p.x[0]->K, blur, p.draws);
  return {.K = std::move(m.K), .mean = std::move(m.mean)};
}

template <class F>
Pulled pull_function(const PullDoor& p, const F& slope, const Blur& blur) {
  const Kernel E = function_moments(slope, p.x[0]->K, blur, p.draws).K;
  return {{UpWire(Kernel::from(E.tokens(), [&](Index t, Index s) { return p.dy.G(t, s) * E(t, s); }))}, {}};
}

// Noted on the way down by an elementwise function, for a max pooling behind it: the Gaussian channels that it was applied to.
struct BeforeFunction {
  Kernel K;
  double (*value)(double);
  double (*slope)(double);
};
// Noted on the way up by that pooling: the gradient's kernel at those channels.
struct BeforeMaximum {
  Kernel G;
};
// Noted on the way up by a function, for a batch norm before it: the gradient before it is multiplied by the slope, and that slope.
struct BehindFunction {
  Kernel G;
  double (*slope)(double);
};

}  // namespace stepzero
