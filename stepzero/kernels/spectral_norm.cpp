#include "stepzero/kernels/spectral_norm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/rows.hpp"

namespace stepzero {

namespace {

using Vector = std::vector<double>;

constexpr Index grain = 64;  // rows of A in a piece of work

// A v
template <class S>
Vector down(View<const S> a, const Vector& v) {
  Vector u(static_cast<std::size_t>(a.rows));
  parallel_ranges(a.rows, grain, [&](Index r0, Index r1) {
    for (Index r = r0; r < r1; ++r) {
      const S* row = a.row(r);
      u[static_cast<std::size_t>(r)] =
          row_sum<double>(a.cols, [&](Index c) { return static_cast<double>(row[c]) * v[static_cast<std::size_t>(c)]; });
    }
  });
  return u;
}

// A' u
template <class S>
Vector up(View<const S> a, const Vector& u) {
  Vector v(static_cast<std::size_t>(a.cols), 0.0);
  constexpr Index columns = 256;
  parallel_ranges(a.cols, columns, [&](Index c0, Index c1) {
    for (Index r = 0; r < a.rows; ++r) {
      const S* row = a.row(r);
      const double by = u[static_cast<std::size_t>(r)];
      for (Index c = c0; c < c1; ++c) v[static_cast<std::size_t>(c)] += by * static_cast<double>(row[c]);
    }
  });
  return v;
}

double dot(const Vector& a, const Vector& b) { return dot_row(a.data(), b.data(), std::ssize(a)); }

void subtract(Vector& a, double by, const Vector& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= by * b[i];
}

double normalise(Vector& a) {
  const double size = std::sqrt(dot(a, a));
  for (double& x : a) x = size > 0 ? x / size : 0;
  return size;
}

// The largest eigenvalue of a symmetric tridiagonal matrix: below it some leading pivot of T - x is positive.
double largest_eigenvalue(const Vector& diagonal, const Vector& beside) {
  double low = 0, high = 0;
  for (std::size_t i = 0; i < diagonal.size(); ++i) {
    low = std::max(low, diagonal[i]);
    high = std::max(high, diagonal[i] + (i > 0 ? beside[i - 1] : 0) + (i + 1 < diagonal.size() ? beside[i] : 0));
  }
  const auto above = [&](double x) {
    double pivot = diagonal[0] - x;
    for (std::size_t i = 1; i < diagonal.size() && pivot < 0; ++i) pivot = diagonal[i] - x - beside[i - 1] * beside[i - 1] / pivot;
    return pivot < 0;
  };
  for (int k = 0; k < 100 && high - low > 1e-15 * high; ++k) {
    const double middle = (low + high) / 2;
    (above(middle) ? high : low) = middle;
  }
  return (low + high) / 2;
}

Vector first_direction(Index n) {
  Vector v(static_cast<std::size_t>(n));
  fill(Distribution::normal(1), make_stream(0, "spectral norm"), 0, std::span<double>(v));
  normalise(v);
  return v;
}

}  // namespace

template <class S>
double spectral_norm(View<const S> a) {
  constexpr std::size_t most = 400, window = 6;
  constexpr double close_enough = 1e-8;  // growth of the value's square within the window
  const std::size_t steps = std::min<std::size_t>(most, static_cast<std::size_t>(std::min(a.rows, a.cols)));
  const bool lying = a.rows < a.cols;  // the vectors that are kept are the shorter ones
  const auto there = [&](const Vector& x) { return lying ? up(a, x) : down(a, x); };
  const auto back = [&](const Vector& x) { return lying ? down(a, x) : up(a, x); };
  std::vector<Vector> kept = {first_direction(lying ? a.rows : a.cols)};
  Vector far, diagonal, beside, values;
  double beta = 0;
  for (std::size_t k = 0; k < steps; ++k) {
    Vector next = there(kept.back());
    if (k > 0) subtract(next, beta, far);
    const double alpha = normalise(next);
    if (!std::isfinite(alpha)) return std::numeric_limits<double>::quiet_NaN();
    far = std::move(next);
    diagonal.push_back(alpha * alpha + beta * beta);
    values.push_back(largest_eigenvalue(diagonal, beside));
    const bool still = k >= window && values[k] - values[k - window] <= close_enough * values[k];
    Vector v = back(far);
    subtract(v, alpha, kept.back());
    for (int twice = 0; twice < 2; ++twice) {
      for (const Vector& old : kept) subtract(v, dot(old, v), old);
    }
    const double size = normalise(v);
    if (still || !(size > 1e-12 * std::sqrt(values[k]))) break;
    beside.push_back(alpha * size);
    beta = size;
    kept.push_back(std::move(v));
  }
  return std::sqrt(values.back());
}

template double spectral_norm(View<const float>);
template double spectral_norm(View<const double>);

}  // namespace stepzero
