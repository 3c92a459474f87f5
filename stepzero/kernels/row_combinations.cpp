#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/row_combinations.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <hwy/highway.h>

#include "stepzero/kernels/row_combinations.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kSums = 16;

// No fused operations: not every level has them.
template <class T>
HWY_INLINE T dot_of(const T* a, const T* b, std::size_t n) {
  const hn::CappedTag<T, kSums> d;
  constexpr std::size_t lanes = hn::MaxLanes(d);
  constexpr std::size_t vectors = kSums / lanes;
  using V = hn::Vec<decltype(d)>;
  V sums[vectors];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::size_t v = 0; v < vectors; ++v)
      sums[v] = hn::Add(sums[v], hn::Mul(hn::LoadU(d, a + i + v * lanes), hn::LoadU(d, b + i + v * lanes)));
  }
  T all[kSums];
  for (std::size_t v = 0; v < vectors; ++v) hn::StoreU(sums[v], d, all + v * lanes);
  for (; i < n; ++i) all[i % kSums] += a[i] * b[i];
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) all[j] += all[j + half];
  }
  return all[0];
}

float dot_float(const float* a, const float* b, std::size_t n) { return dot_of(a, b, n); }
double dot_double(const double* a, const double* b, std::size_t n) { return dot_of(a, b, n); }

// Plain loops: the compiler makes vectors of them for each level.
void subtract(const double* HWY_RESTRICT a, double f, double* HWY_RESTRICT b, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) b[i] -= f * a[i];
}

void subtract_two(double f, const double* HWY_RESTRICT a, double g, const double* HWY_RESTRICT b, double* HWY_RESTRICT to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) to[i] -= f * a[i] + g * b[i];
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(dot_float);
HWY_EXPORT(dot_double);
HWY_EXPORT(subtract);
HWY_EXPORT(subtract_two);

float dot(const float* a, const float* b, std::size_t n) { return HWY_DYNAMIC_DISPATCH(dot_float)(a, b, n); }
double dot(const double* a, const double* b, std::size_t n) { return HWY_DYNAMIC_DISPATCH(dot_double)(a, b, n); }
void subtract(const double* a, double f, double* b, std::size_t n) { HWY_DYNAMIC_DISPATCH(subtract)(a, f, b, n); }
void subtract_two(double f, const double* a, double g, const double* b, double* to, std::size_t n) {
  HWY_DYNAMIC_DISPATCH(subtract_two)(f, a, g, b, to, n);
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
