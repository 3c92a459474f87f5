#include "stepzero/kernels/tridiagonal.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/philox.hpp"
#include "stepzero/kernels/row_combinations.hpp"

namespace stepzero::kernels {

namespace {

using Numbers = std::vector<double>;

std::size_t at(Index i) { return static_cast<std::size_t>(i); }

double size_of(const double* x, std::size_t n) { return std::sqrt(dot(x, x, n)); }

struct Tridiagonal {
  Numbers diagonal, beside;  // beside[i] is T(i, i - 1)
  Numbers scale;             // row i of `a` holds u: H = I - scale[i] u u', of the first i coordinates
};

// u with H x = (0, ..., 0, alpha), in x's place.
double reflect(double* x, Index n, double& scale) {
  const double size = size_of(x, at(n));
  if (n < 2 || !(size > 0)) {
    scale = 0;
    return x[n - 1];
  }
  const double alpha = x[n - 1] > 0 ? -size : size;
  scale = 1 / (size * (size + std::abs(x[n - 1])));
  x[n - 1] -= alpha;
  return alpha;
}

// Each step takes row m off what is left: A <- H A H = A - u w' - w u', together with the product of the step that comes next.
Tridiagonal tridiagonal(View<double> a) {
  const Index n = a.rows;
  Tridiagonal t{Numbers(at(n)), Numbers(at(n)), Numbers(at(n))};
  Numbers w(at(n)), product(at(n)), before_u(at(n)), before_w(at(n));
  for (Index m = n - 1; m >= 0; --m) {
    double* const u = a.row(m);
    if (m + 1 < n) subtract_two(before_u[at(m)], before_w.data(), before_w[at(m)], before_u.data(), u, at(m + 1));
    t.diagonal[at(m)] = u[m];
    if (m == 0) break;
    t.beside[at(m)] = reflect(u, m, t.scale[at(m)]);
    const double scale = t.scale[at(m)];
    // product = A u, where A is what the step before leaves of it
    std::fill_n(product.begin(), m, 0.0);
    for (Index i = 0; i < m; ++i) {
      double* const row = a.row(i);
      if (m + 1 < n) subtract_two(before_u[at(i)], before_w.data(), before_w[at(i)], before_u.data(), row, at(i + 1));
      product[at(i)] += dot(row, u, at(i + 1));
      subtract(row, -u[i], product.data(), at(i));
    }
    const double half = scale * scale * dot(product.data(), u, at(m)) / 2;
    for (Index i = 0; i < m; ++i) w[at(i)] = scale * product[at(i)] - half * u[i];
    std::copy_n(u, m, before_u.begin());
    std::copy_n(w.begin(), m, before_w.begin());
  }
  return t;
}

// All eigenvalues of T, the largest first.
Numbers values_of(Numbers d, Numbers e) {
  const Index n = std::ssize(d);
  for (Index i = 1; i < n; ++i) e[at(i - 1)] = e[at(i)];
  e[at(n - 1)] = 0;
  const auto whole = [&](Index m) {  // the first place from m on where T falls apart
    for (; m + 1 < n; ++m) {
      const double beside = std::abs(d[at(m)]) + std::abs(d[at(m + 1)]);
      if (std::abs(e[at(m)]) <= std::numeric_limits<double>::epsilon() * beside) break;
    }
    return m;
  };
  for (Index l = 0; l < n; ++l) {
    constexpr int most = 60;
    for (int turn = 0; turn < most; ++turn) {
      const Index m = whole(l);
      if (m == l) break;
      double g = (d[at(l + 1)] - d[at(l)]) / (2 * e[at(l)]);
      const double r = std::sqrt(g * g + 1);
      g = d[at(m)] - d[at(l)] + e[at(l)] / (g + std::copysign(r, g));
      double s = 1, c = 1, p = 0;
      Index i = m - 1;
      for (; i >= l; --i) {
        double f = s * e[at(i)];
        const double b = c * e[at(i)];
        const double h = std::sqrt(f * f + g * g);
        e[at(i + 1)] = h;
        if (h == 0) {
          d[at(i + 1)] -= p;
          e[at(m)] = 0;
          break;
        }
        s = f / h, c = g / h;
        g = d[at(i + 1)] - p;
        f = (d[at(i)] - g) * s + 2 * c * b;
        p = s * f;
        d[at(i + 1)] = g + p;
        g = c * f - b;
      }
      if (i >= l) continue;
      d[at(l)] -= p;
      e[at(l)] = g;
      e[at(m)] = 0;
    }
  }
  std::ranges::sort(d, std::greater<>());
  return d;
}

// T - value I = P L U, solved for one right side after the other.
class Shifted {
 public:
  Shifted(const Tridiagonal& t, double value, double tiny) : n_(std::ssize(t.diagonal)), low_(at(n_)), swapped_(at(n_)) {
    main_.resize(at(n_)), first_.resize(at(n_)), second_.resize(at(n_));
    for (Index i = 0; i < n_; ++i) {
      main_[at(i)] = t.diagonal[at(i)] - value;
      first_[at(i)] = i + 1 < n_ ? t.beside[at(i + 1)] : 0;
    }
    for (Index i = 0; i + 1 < n_; ++i) {
      const double below = t.beside[at(i + 1)];
      swapped_[at(i)] = std::abs(below) > std::abs(main_[at(i)]);
      if (swapped_[at(i)]) {
        low_[at(i)] = main_[at(i)] / below;
        const double above = first_[at(i)];
        main_[at(i)] = below, first_[at(i)] = main_[at(i + 1)], second_[at(i)] = first_[at(i + 1)];
        main_[at(i + 1)] = above - low_[at(i)] * first_[at(i)];
        first_[at(i + 1)] = -low_[at(i)] * second_[at(i)];
      } else {
        low_[at(i)] = main_[at(i)] != 0 ? below / main_[at(i)] : 0;
        main_[at(i + 1)] -= low_[at(i)] * first_[at(i)];
      }
    }
    for (double& x : main_) x = std::abs(x) < tiny ? std::copysign(tiny, x) : x;
  }

  void solve(double* x) const {
    for (Index i = 0; i + 1 < n_; ++i) {
      if (swapped_[at(i)]) std::swap(x[i], x[i + 1]);
      x[i + 1] -= low_[at(i)] * x[i];
    }
    for (Index i = n_ - 1; i >= 0; --i) {
      double sum = x[i];
      if (i + 1 < n_) sum -= first_[at(i)] * x[i + 1];
      if (i + 2 < n_) sum -= second_[at(i)] * x[i + 2];
      x[i] = sum / main_[at(i)];
    }
  }

 private:
  Index n_;
  Numbers main_, first_, second_, low_;
  std::vector<char> swapped_;
};

void normalise(double* x, std::size_t n) {
  // what was divided by almost nothing overflows when it is squared
  double most = 0;
  for (std::size_t i = 0; i < n; ++i) most = std::max(most, std::abs(x[i]));
  for (std::size_t i = 0; i < n; ++i) x[i] /= most;
  const double size = size_of(x, n);
  for (std::size_t i = 0; i < n; ++i) x[i] /= size;
}

// Row `i`, whose value is nearly that of the rows from `near` on.
void vector_of(const Tridiagonal& t, double value, double norm, View<double> rows, Index near, Index i) {
  const auto n = at(rows.cols);
  double* const x = rows.row(i);
  for (std::size_t k = 0; k < n; ++k) {
    const auto random = philox4x32_10({static_cast<std::uint32_t>(k), static_cast<std::uint32_t>(i), 0, 0}, {0x51a7U, 0});
    x[k] = static_cast<double>(random[0]) / 4294967296.0 - 0.5;
  }
  const double epsilon = std::numeric_limits<double>::epsilon();
  const Shifted shifted(t, value + 4 * epsilon * norm * static_cast<double>(i - near), epsilon * norm);
  for (int turn = 0; turn < 3; ++turn) {
    shifted.solve(x);
    normalise(x, n);
    for (Index k = near; k < i; ++k) subtract(rows.row(k), dot(rows.row(k), x, n), x, n);
    normalise(x, n);
  }
}

}  // namespace

Leading leading_eigen(View<double> a, Index count) {
  const Index n = a.rows;
  const Tridiagonal t = tridiagonal(a);
  Leading out{values_of(t.diagonal, t.beside), Numbers(at(count * n))};
  out.values.resize(at(count));
  const View<double> rows(out.vectors.data(), count, n);
  double norm = 0;
  for (Index i = 0; i < n; ++i) norm = std::max(norm, std::abs(t.diagonal[at(i)]) + 2 * std::abs(t.beside[at(i)]));
  if (!(norm > 0)) norm = 1;
  constexpr double together = 1e-5;  // farther apart, inverse iteration alone is orthogonal to 1e-11
  std::vector<Index> near(at(count) + 1);
  for (Index i = 0; i < count; ++i)
    near[at(i)] = i > 0 && out.values[at(i - 1)] - out.values[at(i)] < together * norm ? near[at(i - 1)] : i;
  parallel_for(count, [&](Index first) {
    if (near[at(first)] != first) return;
    for (Index i = first; i < count && near[at(i)] == first; ++i) vector_of(t, out.values[at(i)], norm, rows, first, i);
  });
  constexpr Index panel = 16;  // vectors that stay in the cache while every reflection passes by
  parallel_ranges(count, panel, [&](Index begin, Index end) {
    for (Index m = 2; m < n; ++m) {
      for (Index i = begin; i < end; ++i) subtract(a.row(m), t.scale[at(m)] * dot(a.row(m), rows.row(i), at(m)), rows.row(i), at(m));
    }
  });
  return out;
}

}  // namespace stepzero::kernels
