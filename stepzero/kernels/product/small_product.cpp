#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/product/small_product.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <algorithm>
#include <cstring>

#include <hwy/highway.h>

#include "stepzero/kernels/product/small_product.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace {

constexpr Index strip = 16;  // columns of C made at once

// A compiler's own copy of unknown length takes longer to start than a few numbers take.
HWY_INLINE void copy_few(const float* from, float* to, Index n) {
  for (Index j = 0; j < n; ++j) {
    to[j] = from[j];
    asm volatile("" ::: "memory");
  }
}

// Rows [i, i + rows) of one strip of C; b: the strip's columns of op(B), row after row.
template <Index rows>
HWY_INLINE void strip_rows(const float* a, Index next_row, Index next_inner, Index inner, const float* b, float alpha, float beta, float* c,
                           Index stride, Index columns) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, strip> d;
  constexpr Index lanes = hn::MaxLanes(d), vectors = strip / lanes;
  // unrolled, so that the sums stay in registers
  hn::Vec<decltype(d)> sum[rows * vectors];
  HWY_UNROLL(24)
  for (Index v = 0; v < rows * vectors; ++v) sum[v] = hn::Zero(d);
  for (Index k = 0; k < inner; ++k) {
    HWY_UNROLL(6)
    for (Index r = 0; r < rows; ++r) {
      const auto x = hn::Set(d, a[r * next_row + k * next_inner]);
      HWY_UNROLL(4)
      for (Index v = 0; v < vectors; ++v) {
        sum[r * vectors + v] = hn::MulAdd(x, hn::LoadU(d, b + k * strip + v * lanes), sum[r * vectors + v]);
      }
    }
  }
  const auto by = hn::Set(d, alpha);
  float out[rows * strip];
  HWY_UNROLL(24)
  for (Index v = 0; v < rows * vectors; ++v) hn::StoreU(hn::Mul(by, sum[v]), d, out + v * lanes);
  for (Index r = 0; r < rows; ++r) {
    float* const to = c + r * stride;
    const float* const from = out + r * strip;
    if (beta != 0) {
      for (Index j = 0; j < columns; ++j) to[j] = from[j] + beta * to[j];
    } else if (columns == strip) {
      std::memcpy(to, from, strip * sizeof(float));
    } else {
      copy_few(from, to, columns);
    }
  }
}

}  // namespace

void small_product(bool ta, bool tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Index inner = ta ? a.rows : a.cols;
  const Index next_row = ta ? 1 : a.stride, next_inner = ta ? a.stride : 1;
  HWY_ALIGN float packed[small_inner * strip];
  for (Index j0 = 0; j0 < c.cols; j0 += strip) {
    const Index columns = std::min(strip, c.cols - j0);
    if (columns < strip) std::fill_n(packed, inner * strip, 0.0F);
    for (Index j = 0; tb && j < columns; ++j) {
      const float* const row = b.row(j0 + j);
      for (Index k = 0; k < inner; ++k) packed[k * strip + j] = row[k];
    }
    if (!tb && columns == strip) {
      for (Index k = 0; k < inner; ++k) std::memcpy(packed + k * strip, b.row(k) + j0, strip * sizeof(float));
    } else if (!tb) {
      for (Index k = 0; k < inner; ++k) copy_few(b.row(k) + j0, packed + k * strip, columns);
    }
    Index i = 0;
    const auto at = [&](Index row) { return a.data + row * next_row; };
    for (; i + 6 <= c.rows; i += 6)
      strip_rows<6>(at(i), next_row, next_inner, inner, packed, alpha, beta, c.row(i) + j0, c.stride, columns);
    for (; i + 2 <= c.rows; i += 2)
      strip_rows<2>(at(i), next_row, next_inner, inner, packed, alpha, beta, c.row(i) + j0, c.stride, columns);
    for (; i < c.rows; ++i) strip_rows<1>(at(i), next_row, next_inner, inner, packed, alpha, beta, c.row(i) + j0, c.stride, columns);
  }
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(small_product);

void small_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  HWY_DYNAMIC_DISPATCH(small_product)(ta == Trans::yes, tb == Trans::yes, alpha, a, b, beta, c);
}

}  // namespace stepzero::kernels
#endif
