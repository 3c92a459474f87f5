#include "stepzero/ops/move/square.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/kernels/eigen.hpp"

namespace stepzero {

Square Square::of(const Kernel& K) {
  return from(K.tokens(), [&](Index t, Index s) { return K(t, s); });
}

Square Square::one(Index n) {
  Square m(n);
  for (Index t = 0; t < n; ++t) m(t, t) = 1;
  return m;
}

double Square::trace() const {
  double sum = 0;
  for (Index t = 0; t < n_; ++t) sum += (*this)(t, t);
  return sum;
}

Square Square::transposed() const {
  return from(n_, [&](Index t, Index s) { return (*this)(s, t); });
}

Square Square::symmetric() const {
  return from(n_, [&](Index t, Index s) { return ((*this)(t, s) + (*this)(s, t)) / 2; });
}

Square& Square::operator+=(const Square& b) {
  if (b.empty()) return *this;
  if (empty()) return *this = b;
  for (std::size_t i = 0; i < a_.size(); ++i) a_[i] += b.a_[i];
  return *this;
}

Square operator-(Square a, const Square& b) {
  for (std::size_t i = 0; i < a.a_.size(); ++i) a.a_[i] -= b.a_[i];
  return a;
}

Square operator*(double c, Square a) {
  for (double& x : a.a_) x *= c;
  return a;
}

Square operator*(const Square& a, const Square& b) {
  Square c(a.n_);
  gemm<double>(Trans::no, Trans::no, 1.0, a.view(), b.view(), 0.0, c.view());
  return c;
}

double inner(const Square& a, const Square& b) {
  return in_eight(0, static_cast<Index>(a.a_.size()), [x = a.a_.data(), y = b.a_.data()](Index i) { return x[i] * y[i]; });
}

Square between(const Square& a, const Square& x) {
  const Square half = a * x;
  Square c(a.tokens());
  gemm<double>(Trans::no, Trans::yes, 1.0, half.view(), a.view(), 0.0, c.view());
  return c;
}

Square by_entry(const Square& a, const Square& b) {
  return Square::from(a.tokens(), [&](Index t, Index s) { return a(t, s) * b(t, s); });
}

namespace {

// sum_i f(value_i) v_i v_i', or with `half` the matrix whose columns are the root of f times v_i.
template <class F>
Square by_values(const Square& K, const F& f, bool half) {
  const Index n = K.tokens();
  Matrix m(n, n);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) m(t, s) = (K(t, s) + K(s, t)) / 2;
  }
  const kernels::Eigen e = kernels::eigen(std::move(m));
  const double top = std::max(e.values.back(), 0.0);
  Square scaled(n);
  for (Index i = 0; i < n; ++i) {
    const double c = f(e.values[static_cast<std::size_t>(i)], top);
    for (Index t = 0; t < n; ++t) scaled(t, i) = c * e.vectors(i, t);
  }
  if (half) return scaled;
  Square out(n);
  gemm<double>(Trans::no, Trans::no, 1.0, scaled.view(), View<const double>(e.vectors), 0.0, out.view());
  return out;
}

}  // namespace

namespace {

// Row by row, L_ts = (K_ts - <L_t, L_s>) / L_ss; a direction that is not there gets an empty column. Of no tokens where K has directions
// that are negative by more than rounding.
Square cholesky(const Square& K) {
  const Index n = K.tokens();
  double top = 0;
  for (Index t = 0; t < n; ++t) top = std::max(top, K(t, t));
  const double least = 1e-11 * top;
  Square L(n);
  for (Index t = 0; t < n; ++t) {
    double* const row = L.view().row(t);
    for (Index s = 0; s <= t; ++s) {
      const double* const other = L.view().row(s);
      const double rest = (K(t, s) + K(s, t)) / 2 - in_eight(0, s, [=](Index i) { return row[i] * other[i]; });
      if (s < t) {
        row[s] = other[s] > 0 ? rest / other[s] : 0;
      } else if (rest < -1e3 * least) {
        return {};
      } else {
        row[t] = rest > least ? std::sqrt(rest) : 0;
      }
    }
  }
  return L;
}

}  // namespace

Square root_of(const Square& K) {
  if (Square L = cholesky(K); !L.empty()) return L;
  return by_values(K, [](double x, double) { return x > 0 ? std::sqrt(x) : 0; }, true);
}

Square inverse_of(const Square& K) {
  constexpr double least = 1e-9;
  return by_values(K, [](double x, double top) { return x > least * top ? 1 / x : 0; }, false);
}

Kernel to_kernel(const Square& K) {
  return Kernel::from(K.tokens(), [&](Index t, Index s) { return (K(t, s) + K(s, t)) / 2; });
}

}  // namespace stepzero
