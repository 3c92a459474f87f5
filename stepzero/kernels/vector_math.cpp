#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/vector_math.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "stepzero/kernels/vector_math.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// A SIMD register dressed as a scalar, so that the formulas of phi-inl.hpp compile for it.
struct Pack {
  V v;
  HWY_INLINE Pack(V v_) : v(v_) {}  // NOLINT
  HWY_INLINE explicit Pack(double x) : v(hn::Set(D(), static_cast<float>(x))) {}
  HWY_INLINE Pack operator-() const { return hn::Neg(v); }
};
HWY_INLINE Pack operator+(Pack a, Pack b) { return hn::Add(a.v, b.v); }
HWY_INLINE Pack operator-(Pack a, Pack b) { return hn::Sub(a.v, b.v); }
HWY_INLINE Pack operator*(Pack a, Pack b) { return hn::Mul(a.v, b.v); }
HWY_INLINE Pack operator/(Pack a, Pack b) { return hn::Div(a.v, b.v); }

// hn::Exp is not defined above 104 and loses NaN; a NaN must stay one, or a broken signal would look whole.
HWY_INLINE V safe_exp(V x) {
  const D d;
  const V limit = hn::Set(d, 88.0F);
  const V e = hn::IfThenElse(hn::Gt(x, limit), hn::Inf(d), hn::Exp(d, hn::Min(x, limit)));
  return hn::IfThenElse(hn::IsNaN(x), x, e);
}
HWY_INLINE Pack exp(Pack x) { return safe_exp(x.v); }
HWY_INLINE Pack positive_part(Pack x) { return hn::IfThenElse(hn::Le(x.v, hn::Zero(D())), hn::Zero(D()), x.v); }
HWY_INLINE Pack at_most(Pack x, double c) {
  const V top = hn::Set(D(), static_cast<float>(c));
  return hn::IfThenElse(hn::Ge(x.v, top), top, x.v);
}
HWY_INLINE Pack step(Pack x) { return hn::IfThenElseZero(hn::Gt(x.v, hn::Zero(D())), hn::Set(D(), 1.0F)); }

template <size_t N>
HWY_INLINE V polynomial(V x, const float (&c)[N]) {
  V r = hn::Set(D(), c[N - 1]);
  for (size_t k = N - 1; k-- > 0;) r = hn::MulAdd(r, x, hn::Set(D(), c[k]));
  return r;
}

// tanh: below 0.55 an odd polynomial (no cancelling near 0), above it 1 - 2/(exp(2|x|) + 1)
HWY_INLINE Pack tanh(Pack x) {
  // least-squares fit of tanh(x)/x in x^2 on [0, 0.55], relative error 1e-9
  static constexpr float c[] = {1.0F, -0.333333105F, 0.133324608F, -0.0538427681F, 0.0210398789F, -0.00623580441F};
  const D d;
  const V t = hn::Abs(x.v);
  const V small = hn::Mul(x.v, polynomial(hn::Mul(x.v, x.v), c));
  const V e = exp(Pack(hn::Add(t, t))).v;
  const V large = hn::Sub(hn::Set(d, 1.0F), hn::Div(hn::Set(d, 2.0F), hn::Add(e, hn::Set(d, 1.0F))));
  return hn::IfThenElse(hn::Lt(t, hn::Set(d, 0.55F)), small, hn::CopySign(large, x.v));
}

// P(Z <= x) = (1 + erf(z))/2 for |z| < 1, else from erfc(t) = exp(-t Q(t)), t = |z|; z = x/sqrt(2)
HWY_INLINE Pack normal_cdf(Pack x) {
  // least-squares fits on Chebyshev nodes: erf(z)/z in z^2 on [0, 1], -ln(erfc(t))/t on [0.95, 4.1]
  static constexpr float p[] = {1.1283791F, -0.37612626F, 0.11283585F, -0.026853818F, 0.0051883399F, -8.0102886e-4F, 7.854151e-5F};
  static constexpr float q[] = {1.1285712F,    0.63553643F,    0.10543349F,    -0.022852551F,
                                0.0030394632F, -8.8844063e-5F, -3.7930782e-5F, 4.3142891e-6F};
  const D d;
  const V half = hn::Set(d, 0.5F);
  const V z = hn::Mul(x.v, hn::Set(d, 0.70710678F));
  const V size = hn::Abs(z);
  const V t = hn::Min(size, hn::Set(d, 4.1F));
  const V near = hn::MulAdd(hn::Mul(half, z), polynomial(hn::Mul(z, z), p), half);
  // beyond the fit the tail falls like exp(-z^2), continuing from where the fit ends
  const V beyond = hn::Mul(hn::Sub(size, t), hn::Add(size, t));
  const V exponent = hn::Min(hn::MulAdd(t, polynomial(t, q), beyond), hn::Set(d, 104.0F));
  const V tail = hn::Mul(half, hn::Exp(d, hn::Neg(exponent)));
  const V far = hn::IfThenElse(hn::Gt(z, hn::Zero(d)), hn::Sub(hn::Set(d, 1.0F), tail), tail);
  return hn::IfThenElse(hn::Lt(t, hn::Set(d, 1.0F)), near, far);
}

#include "stepzero/kernels/phi-inl.hpp"

// Calls body(offset, load, store) for full registers, then once for the remainder in a padded buffer.
template <class Body>
HWY_INLINE void for_each_pack(Index n, const Body& body) {
  const Index lanes = static_cast<Index>(hn::Lanes(D()));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) body(i, lanes);
  if (i < n) body(i, n - i);
}

HWY_INLINE V load(const float* p, Index n) {
  const D d;
  if (n == static_cast<Index>(hn::Lanes(d))) return hn::LoadU(d, p);
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  for (Index i = 0; i < n; ++i) buffer[i] = p[i];
  return hn::Load(d, buffer);
}

HWY_INLINE void store(V v, float* p, Index n) {
  const D d;
  if (n == static_cast<Index>(hn::Lanes(d))) return hn::StoreU(v, d, p);
  HWY_ALIGN float buffer[HWY_MAX_BYTES / sizeof(float)] = {};
  hn::Store(v, d, buffer);
  for (Index i = 0; i < n; ++i) p[i] = buffer[i];
}

template <class Phi>
void apply(const float* x, float* y, Index n) {
  for_each_pack(n, [&](Index i, Index k) HWY_ATTR { store(Phi::value(Pack(load(x + i, k))).v, y + i, k); });
}

template <class Phi>
void apply_slope(const float* x, const float* dy, float* dx, Index n, bool add) {
  for_each_pack(n, [&](Index i, Index k) HWY_ATTR {
    V d = hn::Mul(Phi::slope(Pack(load(x + i, k))).v, load(dy + i, k));
    if (add) d = hn::Add(d, load(dx + i, k));
    store(d, dx + i, k);
  });
}

// The first k lanes, 0 in the others.
HWY_INLINE V first(V v, Index k) { return hn::IfThenElseZero(hn::FirstN(D(), static_cast<size_t>(k)), v); }
HWY_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(D(), v)); }

// Pairs of registers, then what is left: body(offset, numbers, even).
template <class Body>
HWY_INLINE void for_each_pair(Index n, const Body& body) {
  const Index lanes = static_cast<Index>(hn::Lanes(D()));
  Index i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    body(i, lanes, true);
    body(i + lanes, lanes, false);
  }
  for (bool even = true; i < n; i += lanes, even = false) body(i, HWY_MIN(lanes, n - i), even);
}

template <bool write>
HWY_INLINE float exp_and_sum(const float* x, float shift, float* y, Index n) {
  const D d;
  const V s = hn::Set(d, shift);
  V sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for_each_pair(n, [&](Index i, Index k, bool even) HWY_ATTR {
    const V e = safe_exp(hn::Sub(load(x + i, k), s));
    if constexpr (write) store(e, y + i, k);
    V& sum = even ? sum0 : sum1;
    sum = hn::Add(sum, k == static_cast<Index>(hn::Lanes(d)) ? e : first(e, k));
  });
  return sum_of(hn::Add(sum0, sum1));
}

float exp_write(const float* x, float shift, float* y, Index n) { return exp_and_sum<true>(x, shift, y, n); }
float exp_sum(const float* x, float shift, Index n) { return exp_and_sum<false>(x, shift, nullptr, n); }

float max_of(const float* x, Index n) {
  const D d;
  const Index lanes = static_cast<Index>(hn::Lanes(d));
  V m = hn::Set(d, x[0]);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) m = hn::Max(m, hn::LoadU(d, x + i));
  float best = hn::GetLane(hn::MaxOfLanes(d, m));
  for (; i < n; ++i) best = HWY_MAX(best, x[i]);
  return best;
}

RowSpread<float> spread(const float* x, Index n) {
  const D d;
  const float top = max_of(x, n);
  V sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for_each_pair(n, [&](Index i, Index k, bool even) HWY_ATTR {
    V& sum = even ? sum0 : sum1;
    sum = hn::Add(sum, load(x + i, k));
  });
  const float mean = sum_of(hn::Add(sum0, sum1)) / static_cast<float>(n);
  sum0 = sum1 = hn::Zero(d);
  for_each_pair(n, [&](Index i, Index k, bool even) HWY_ATTR {
    const V off = first(hn::Sub(load(x + i, k), hn::Set(d, mean)), k);
    V& sum = even ? sum0 : sum1;
    sum = hn::MulAdd(off, off, sum);
  });
  return {mean, sum_of(hn::Add(sum0, sum1)), top};
}

ExpSums<float> exp_sums(float* x, float shift, Index n) {
  const D d;
  V total = hn::Zero(d), moment = hn::Zero(d), squares = hn::Zero(d);
  for_each_pair(n, [&](Index i, Index k, bool) HWY_ATTR {
    const V shifted = hn::Sub(load(x + i, k), hn::Set(d, shift));
    const V e = first(safe_exp(shifted), k);
    store(e, x + i, k);
    total = hn::Add(total, e);
    moment = hn::MulAdd(shifted, e, moment);
    squares = hn::MulAdd(e, e, squares);
  });
  return {sum_of(total), sum_of(moment), sum_of(squares)};
}

void scale(float* x, float a, Index n) {
  for_each_pack(n, [&](Index i, Index k) HWY_ATTR { store(hn::Mul(load(x + i, k), hn::Set(D(), a)), x + i, k); });
}

void softmax_up(float* a, float* d, float z, Index n) {
  V total = hn::Zero(D()), product = hn::Zero(D());
  for_each_pair(n, [&](Index i, Index k, bool) HWY_ATTR {
    const V e = first(safe_exp(hn::Sub(load(a + i, k), hn::Set(D(), z))), k);
    store(e, a + i, k);
    total = hn::Add(total, e);
    product = hn::MulAdd(e, load(d + i, k), product);
  });
  const float inverse = 1 / sum_of(total);
  const V scale = hn::Set(D(), inverse), mean = hn::Set(D(), sum_of(product) * inverse);
  for_each_pack(n, [&](Index i, Index k) HWY_ATTR {
    const V weight = hn::Mul(load(a + i, k), scale);
    store(weight, a + i, k);
    store(hn::Mul(weight, hn::Sub(load(d + i, k), mean)), d + i, k);
  });
}

#define STEPZERO_PHI(Phi)                                                      \
  void apply_##Phi(const float* x, float* y, Index n) { apply<Phi>(x, y, n); } \
  void slope_##Phi(const float* x, const float* dy, float* dx, Index n, bool add) { apply_slope<Phi>(x, dy, dx, n, add); }
STEPZERO_SIMD_PHIS(STEPZERO_PHI)
#undef STEPZERO_PHI

}  // namespace stepzero::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero {

HWY_EXPORT(exp_write);
HWY_EXPORT(exp_sum);
HWY_EXPORT(max_of);
HWY_EXPORT(spread);
HWY_EXPORT(exp_sums);
HWY_EXPORT(scale);
HWY_EXPORT(softmax_up);

float exp_row(const float* x, float shift, float* y, Index n) { return HWY_DYNAMIC_DISPATCH(exp_write)(x, shift, y, n); }
float exp_sum_row(const float* x, float shift, Index n) { return HWY_DYNAMIC_DISPATCH(exp_sum)(x, shift, n); }
RowSpread<float> spread_row(const float* x, Index n) { return HWY_DYNAMIC_DISPATCH(spread)(x, n); }
ExpSums<float> exp_sums_row(float* x, float shift, Index n) { return HWY_DYNAMIC_DISPATCH(exp_sums)(x, shift, n); }
void scale_row(float* x, float a, Index n) { HWY_DYNAMIC_DISPATCH(scale)(x, a, n); }
void softmax_up_row(float* a, float* d, float z, Index n) { HWY_DYNAMIC_DISPATCH(softmax_up)(a, d, z, n); }
float max_row(const float* x, Index n) { return HWY_DYNAMIC_DISPATCH(max_of)(x, n); }

#define STEPZERO_PHI(Phi)                                                                    \
  HWY_EXPORT(apply_##Phi);                                                                   \
  HWY_EXPORT(slope_##Phi);                                                                   \
  template <>                                                                                \
  void apply_row<Phi>(const float* x, float* y, Index n) {                                   \
    HWY_DYNAMIC_DISPATCH(apply_##Phi)(x, y, n);                                              \
  }                                                                                          \
  template <>                                                                                \
  void apply_slope_row<Phi>(const float* x, const float* dy, float* dx, Index n, bool add) { \
    HWY_DYNAMIC_DISPATCH(slope_##Phi)(x, dy, dx, n, add);                                    \
  }
STEPZERO_SIMD_PHIS(STEPZERO_PHI)
#undef STEPZERO_PHI

}  // namespace stepzero
#endif
