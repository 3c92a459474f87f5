#pragma once
// The elementwise functions for the plain scalars. The formulas are in phi-inl.hpp.
#include <cmath>
#include <tuple>

#include "stepzero/core/dual.hpp"

namespace stepzero {

using std::exp;
using std::tanh;

// max(x, 0), and NaN stays NaN
inline float positive_part(float x) { return x <= 0 ? 0 : x; }
inline double positive_part(double x) { return x <= 0 ? 0 : x; }
inline Dual positive_part(Dual x) { return x.value <= 0 ? Dual(0) : x; }
// min(x, c), and NaN stays NaN
inline float at_most(float x, double c) { return x >= static_cast<float>(c) ? static_cast<float>(c) : x; }
inline double at_most(double x, double c) { return x >= c ? c : x; }
inline Dual at_most(Dual x, double c) { return x.value >= c ? Dual(c) : x; }
inline float step(float x) { return x > 0 ? 1.0F : 0.0F; }
inline double step(double x) { return x > 0 ? 1 : 0; }
inline Dual step(Dual x) { return step(x.value); }

// P(Z <= x) for a standard normal Z, accurate in the lower tail too
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * 0.7071067811865476); }
inline float normal_cdf(float x) { return static_cast<float>(normal_cdf(static_cast<double>(x))); }
inline Dual normal_cdf(Dual x) { return {normal_cdf(x.value), 0.3989422804014327 * std::exp(-0.5 * x.value * x.value) * x.slope}; }

#include "stepzero/kernels/phi-inl.hpp"

// The one list of elementwise functions.
template <template <class...> class List>
using PhiList =
    List<Identity, Relu, ReluSquared, Relu6, LeakyRelu, Sigmoid, Tanh, Silu, QuickGelu, GeluErf, GeluTanh, Gelu10, Mish, Laplace>;

}  // namespace stepzero
