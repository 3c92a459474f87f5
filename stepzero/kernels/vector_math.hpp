#pragma once
// Rows of transcendental functions: the plain template is the reference and serves double and Dual;
// the float overloads are SIMD, chosen at run time for the CPU, and compared with the reference in ulps.
#include <algorithm>

#include "stepzero/core/view.hpp"
#include "stepzero/kernels/phi.hpp"
#include "stepzero/kernels/rows.hpp"

namespace stepzero {

// y = f(x)
template <class Phi, class S>
void apply_row(const S* x, S* y, Index n) {
  for (Index i = 0; i < n; ++i) y[i] = Phi::value(x[i]);
}

// dx = f'(x) dy, or dx += when add
template <class Phi, class S>
void apply_slope_row(const S* x, const S* dy, S* dx, Index n, bool add) {
  for (Index i = 0; i < n; ++i) {
    const S d = Phi::slope(x[i]) * dy[i];
    dx[i] = add ? dx[i] + d : d;
  }
}

// y = exp(x - shift); returns the sum of y. y may be x.
template <class S>
S exp_row(const S* x, S shift, S* y, Index n) {
  S sum = S(0);
  for (Index i = 0; i < n; ++i) sum += y[i] = exp(x[i] - shift);
  return sum;
}

// The sum alone, nothing written.
template <class S>
S exp_sum_row(const S* x, S shift, Index n) {
  S sum = S(0);
  for (Index i = 0; i < n; ++i) sum += exp(x[i] - shift);
  return sum;
}

template <class S>
S max_row(const S* x, Index n) {
  return *std::max_element(x, x + n);
}

// What a softmax and its statistics need of a row: its mean, sum of squared deviations and largest number.
template <class S>
struct RowSpread {
  S mean, deviations, top;
};
template <class S>
RowSpread<S> spread_row(const S* x, Index n) {
  const S mean = row_sum<S>(n, [&](Index i) { return x[i]; }) / S(static_cast<double>(n));
  return {mean, row_sum<S>(n, [&](Index i) { return (x[i] - mean) * (x[i] - mean); }), max_row(x, n)};
}

// x = exp(x - shift) = e; the sums of e, (x - shift) e and e^2.
template <class S>
struct ExpSums {
  S total, moment, squares;
};
template <class S>
ExpSums<S> exp_sums_row(S* x, S shift, Index n) {
  ExpSums<S> sums{S(0), S(0), S(0)};
  for (Index i = 0; i < n; ++i) {
    const S shifted = x[i] - shift, e = exp(shifted);
    x[i] = e;
    sums.total += e;
    sums.moment += shifted * e;
    sums.squares += e * e;
  }
  return sums;
}

// x = a x
template <class S>
void scale_row(S* x, S a, Index n) {
  for (Index i = 0; i < n; ++i) x[i] *= a;
}

// Up through a softmax. In: a = scores, whose log-sum is about z; d = dA. Out: a = weights that sum to 1, d = a (d - <a, d>).
template <class S>
void softmax_up_row(S* a, S* d, S z, Index n) {
  const S inverse = S(1) / exp_row(a, z, a, n);  // z is rounded: this takes its error out of every weight of the row
  scale_row(a, inverse, n);
  const S mean = dot_row(a, d, n);
  for (Index i = 0; i < n; ++i) d[i] = a[i] * (d[i] - mean);
}

RowSpread<float> spread_row(const float* x, Index n);
ExpSums<float> exp_sums_row(float* x, float shift, Index n);
void scale_row(float* x, float a, Index n);
void softmax_up_row(float* a, float* d, float z, Index n);
float exp_row(const float* x, float shift, float* y, Index n);
float exp_sum_row(const float* x, float shift, Index n);
float max_row(const float* x, Index n);

#define STEPZERO_PHI(Phi)                                 \
  template <>                                             \
  void apply_row<Phi>(const float* x, float* y, Index n); \
  template <>                                             \
  void apply_slope_row<Phi>(const float* x, const float* dy, float* dx, Index n, bool add);
#define STEPZERO_SIMD_PHIS(X) \
  X(Sigmoid) X(Tanh) X(Silu) X(QuickGelu) X(GeluErf) X(GeluTanh) X(Gelu10) X(Mish) X(Laplace) X(Relu) X(ReluSquared) X(Relu6) X(LeakyRelu)
STEPZERO_SIMD_PHIS(STEPZERO_PHI)
#undef STEPZERO_PHI

}  // namespace stepzero
