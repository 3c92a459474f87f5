#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/wave_sums.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <hwy/highway.h>

#include "stepzero/kernels/wave_sums.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// No fused operations: not every level has them.
using D = hn::CappedTag<double, waves_together>;
constexpr std::size_t kStep = hn::MaxLanes(D());

HWY_INLINE hn::Vec<D> load(const Lanes& x, std::size_t k) { return hn::LoadU(D(), x.data() + k); }
HWY_INLINE hn::Vec<D> plus(hn::Vec<D> sum, hn::Vec<D> a, hn::Vec<D> b) { return hn::Add(sum, hn::Mul(a, b)); }

void add_turned_rows(const double* b, double factor, const Lanes* cos, const Lanes* sin, Lanes* to_cos, Lanes* to_sin, std::size_t n) {
  const D d;
  for (std::size_t l = 0; l < n; ++l) {
    const auto w = hn::Set(d, factor * b[l]);
    for (std::size_t k = 0; k < waves_together; k += kStep) {
      hn::StoreU(plus(load(to_cos[l], k), w, load(cos[l], k)), d, to_cos[l].data() + k);
      hn::StoreU(plus(load(to_sin[l], k), w, load(sin[l], k)), d, to_sin[l].data() + k);
    }
  }
}

void sum_rows_along(const double* weights, const Lanes* from_cos, const Lanes* from_sin, Lanes* to_cos, Lanes* to_sin, std::size_t n) {
  const D d;
  for (std::size_t k = 0; k < waves_together; k += kStep) {
    auto c = load(to_cos[0], k), s = load(to_sin[0], k);
    for (std::size_t l = 0; l < n; ++l) {
      const auto w = hn::Set(d, weights[l]);
      hn::StoreU(c = plus(c, w, load(from_cos[l], k)), d, to_cos[l + 1].data() + k);
      hn::StoreU(s = plus(s, w, load(from_sin[l], k)), d, to_sin[l + 1].data() + k);
    }
  }
}

void add_reals(const Lanes* cos, const Lanes* sin, const Lanes* c, const Lanes* s, const std::int64_t* begins, const std::int64_t* ends,
               double* out, std::size_t n) {
  const D d;
  for (std::size_t i = 0; i < n; ++i) {
    const Lanes &turn_cos = *(cos - i), &turn_sin = *(sin - i);
    const std::ptrdiff_t begin = begins[i], end = ends[i];
    Lanes all;
    for (std::size_t k = 0; k < waves_together; k += kStep) {
      const auto real = hn::Mul(load(turn_cos, k), hn::Sub(load(c[end], k), load(c[begin], k)));
      const auto imaginary = hn::Mul(load(turn_sin, k), hn::Sub(load(s[end], k), load(s[begin], k)));
      hn::StoreU(hn::Sub(real, imaginary), d, all.data() + k);
    }
    out[i] += ((all[0] + all[4]) + (all[2] + all[6])) + ((all[1] + all[5]) + (all[3] + all[7]));
  }
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(add_turned_rows);
HWY_EXPORT(sum_rows_along);
HWY_EXPORT(add_reals);

void add_turned(const double* b, double factor, const Lanes* cos, const Lanes* sin, Lanes* to_cos, Lanes* to_sin, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add_turned_rows)(b, factor, cos, sin, to_cos, to_sin, n);
}
void sum_along(const double* weights, const Lanes* from_cos, const Lanes* from_sin, Lanes* to_cos, Lanes* to_sin, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(sum_rows_along)(weights, from_cos, from_sin, to_cos, to_sin, n);
}
void add_real_parts(const Lanes* cos, const Lanes* sin, const Lanes* c, const Lanes* s, const std::int64_t* begins,
                    const std::int64_t* ends, double* out, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(add_reals)(cos, sin, c, s, begins, ends, out, n);
}

}  // namespace stepzero::kernels
#endif
