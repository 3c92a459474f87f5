#pragma once
// Rows of transcendental functions: the plain template is the reference and serves double and Dual;
// the float overloads are SIMD, chosen at run time for the CPU, and compared with the reference in ulps.
#include <algorithm>

#include "stepzero/core/view.hpp"
#include "stepzero/kernels/phi.hpp"

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
