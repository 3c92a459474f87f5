#include "stepzero/optim/update_rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/optim/update_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace stepzero::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

HWY_INLINE V set(float x) { return hn::Set(D(), x); }
HWY_INLINE V load(const float* p) { return hn::LoadU(D(), p); }
HWY_INLINE void store(V v, float* p) { hn::StoreU(v, D(), p); }

// a x + b y, each product rounded
HWY_INLINE V mix(V a, V x, V b, V y) { return hn::Add(hn::Mul(a, x), hn::Mul(b, y)); }

static void sgd(float* w, const float* g, float* buffer, Index n, const SgdNumbers<float>& c) {
  const Index lanes = static_cast<Index>(hn::Lanes(D()));
  const V kept = set(c.kept), size = set(c.size), shrink = set(c.shrink), momentum = set(c.momentum);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V d = hn::Mul(shrink, load(g + i));
    V u = d;
    if (buffer != nullptr) {
      const V b = hn::Add(hn::Mul(momentum, load(buffer + i)), d);
      store(b, buffer + i);
      u = c.nesterov ? hn::Add(d, hn::Mul(momentum, b)) : b;
    }
    store(hn::Sub(hn::Mul(kept, load(w + i)), hn::Mul(size, u)), w + i);
  }
  sgd_row<float>(w + i, g + i, buffer == nullptr ? nullptr : buffer + i, n - i, c);
}

static void adam(float* w, const float* g, float* m, float* v, Index n, const AdamNumbers<float>& c) {
  const Index lanes = static_cast<Index>(hn::Lanes(D()));
  const V kept = set(c.kept), size = set(c.size), shrink = set(c.shrink), eps = set(c.eps), unbias2 = set(c.unbias2);
  const V beta1 = set(c.beta1), fresh1 = set(c.fresh1), beta2 = set(c.beta2), fresh2 = set(c.fresh2);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V d = hn::Mul(shrink, load(g + i));
    const V first = mix(beta1, load(m + i), fresh1, d);
    const V second = mix(beta2, load(v + i), fresh2, hn::Mul(d, d));
    store(first, m + i);
    store(second, v + i);
    const V step = hn::Div(first, hn::Add(hn::Div(hn::Sqrt(second), unbias2), eps));
    store(hn::Sub(hn::Mul(kept, load(w + i)), hn::Mul(size, step)), w + i);
  }
  adam_row<float>(w + i, g + i, m + i, v + i, n - i, c);
}

static void lion(float* w, const float* g, float* m, Index n, const LionNumbers<float>& c) {
  const Index lanes = static_cast<Index>(hn::Lanes(D()));
  const V kept = set(c.kept), size = set(c.size), shrink = set(c.shrink), one = set(1.0F), zero = set(0.0F);
  const V beta1 = set(c.beta1), fresh1 = set(c.fresh1), beta2 = set(c.beta2), fresh2 = set(c.fresh2);
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    const V d = hn::Mul(shrink, load(g + i));
    const V old = load(m + i);
    const V u = mix(beta1, old, fresh1, d);
    const V sign = hn::Sub(hn::IfThenElseZero(hn::Gt(u, zero), one), hn::IfThenElseZero(hn::Lt(u, zero), one));
    store(hn::Sub(hn::Mul(kept, load(w + i)), hn::Mul(size, sign)), w + i);
    store(mix(beta2, old, fresh2, d), m + i);
  }
  lion_row<float>(w + i, g + i, m + i, n - i, c);
}

}  // namespace stepzero::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero {

HWY_EXPORT(sgd);
HWY_EXPORT(adam);
HWY_EXPORT(lion);

void sgd_row(float* w, const float* g, float* buffer, Index n, const SgdNumbers<float>& c) {
  HWY_DYNAMIC_DISPATCH(sgd)(w, g, buffer, n, c);
}
void adam_row(float* w, const float* g, float* m, float* v, Index n, const AdamNumbers<float>& c) {
  HWY_DYNAMIC_DISPATCH(adam)(w, g, m, v, n, c);
}
void lion_row(float* w, const float* g, float* m, Index n, const LionNumbers<float>& c) { HWY_DYNAMIC_DISPATCH(lion)(w, g, m, n, c); }

}  // namespace stepzero
#endif
