#include "stepzero/kernels/census.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/census.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stepzero/kernels/stored-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

template <class L>
float Step(const typename L::Type* w, std::size_t n, const float* v, float* z) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  auto y0 = hn::Zero(df), y1 = y0, y2 = y0, y3 = y0;
  std::size_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    y0 = hn::MulAdd(L::Load(df, w + i), hn::LoadU(df, v + i), y0);
    y1 = hn::MulAdd(L::Load(df, w + i + lanes), hn::LoadU(df, v + i + lanes), y1);
    y2 = hn::MulAdd(L::Load(df, w + i + 2 * lanes), hn::LoadU(df, v + i + 2 * lanes), y2);
    y3 = hn::MulAdd(L::Load(df, w + i + 3 * lanes), hn::LoadU(df, v + i + 3 * lanes), y3);
  }
  for (; i + lanes <= n; i += lanes) y0 = hn::MulAdd(L::Load(df, w + i), hn::LoadU(df, v + i), y0);
  float y = hn::GetLane(hn::SumOfLanes(df, hn::Add(hn::Add(y0, y1), hn::Add(y2, y3))));
  for (; i < n; ++i) y = std::fma(L::One(w + i), v[i], y);
  const auto all = hn::Set(df, y);
  for (i = 0; i + lanes <= n; i += lanes) hn::StoreU(hn::MulAdd(all, L::Load(df, w + i), hn::LoadU(df, z + i)), df, z + i);
  for (; i < n; ++i) z[i] = std::fma(y, L::One(w + i), z[i]);
  return y;
}

float StepOf(Stored stored, const void* w, std::size_t n, const float* v, float* z) {
  if (stored == Stored::f32) return Step<LoadFloat>(static_cast<const float*>(w), n, v, z);
  const auto* words = static_cast<const std::uint16_t*>(w);
  return stored == Stored::bf16 ? Step<LoadBrain>(words, n, v, z) : Step<LoadHalf>(words, n, v, z);
}

// Taken as signed integers the extremes of a sign lie at one end, as unsigned ones at the other.
template <class T>
void Range(const T* x, const Rows& rows, PatternRange& range) {
  constexpr int shift = 8 * sizeof(T) - 16;
  const auto note = [&](T pattern) {
    const auto upper = static_cast<std::uint32_t>(pattern >> shift), side = upper >> 15;
    const auto size = static_cast<std::uint16_t>(upper & 0x7FFFU);
    range.low[side] = std::min(range.low[side], size);
    range.high[side] = std::max(range.high[side], size);
  };
  const hn::ScalableTag<T> d;
  const hn::RebindToSigned<decltype(d)> di;
  const std::size_t lanes = hn::Lanes(d), whole = rows.length - rows.length % lanes;
  if (whole > 0 && rows.count > 0) {
    auto high = hn::LoadU(d, x), low = high;
    auto top = hn::BitCast(di, high), bottom = top;
    for (std::size_t r = 0; r < rows.count; ++r) {
      for (std::size_t i = 0; i < whole; i += lanes) {
        const auto v = hn::LoadU(d, x + r * rows.stride + i);
        high = hn::Max(high, v);
        low = hn::Min(low, v);
        top = hn::Max(top, hn::BitCast(di, v));
        bottom = hn::Min(bottom, hn::BitCast(di, v));
      }
    }
    T ends[128];  // more lanes than any vector has
    for (const auto& v : {high, low, hn::BitCast(d, top), hn::BitCast(d, bottom)}) {
      hn::StoreU(v, d, ends);
      for (std::size_t i = 0; i < lanes; ++i) note(ends[i]);
    }
  }
  for (std::size_t r = 0; r < rows.count; ++r) {
    for (std::size_t i = whole; i < rows.length; ++i) note(x[r * rows.stride + i]);
  }
}

void RangeOf(Stored stored, const void* x, const Rows& rows, PatternRange& range) {
  if (stored == Stored::f32) return Range(static_cast<const std::uint32_t*>(x), rows, range);
  return Range(static_cast<const std::uint16_t*>(x), rows, range);
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(StepOf);
HWY_EXPORT(RangeOf);

float gram_step(Stored stored, const void* w, std::size_t n, const float* v, float* z) {
  return HWY_DYNAMIC_DISPATCH(StepOf)(stored, w, n, v, z);
}

namespace {

void count_halves(const std::uint16_t* x, std::size_t n, std::uint32_t* tables) {
  std::uint32_t *const even = tables, *const odd = tables + kPatterns;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    std::uint64_t a = 0, b = 0;
    std::memcpy(&a, x + i, sizeof a);
    std::memcpy(&b, x + i + 4, sizeof b);
    ++even[a & 0xFFFFU];
    ++odd[b & 0xFFFFU];
    ++even[a >> 16 & 0xFFFFU];
    ++odd[b >> 16 & 0xFFFFU];
    ++even[a >> 32 & 0xFFFFU];
    ++odd[b >> 32 & 0xFFFFU];
    ++even[a >> 48];
    ++odd[b >> 48];
  }
  for (; i < n; ++i) ++even[x[i]];
}

void count_upper_halves(const std::uint32_t* x, std::size_t n, std::uint32_t* tables) {
  std::uint32_t *const even = tables, *const odd = tables + kPatterns;
  std::size_t i = 0;
  for (; i + 2 <= n; i += 2) {
    ++even[x[i] >> 16];
    ++odd[x[i + 1] >> 16];
  }
  for (; i < n; ++i) ++even[x[i] >> 16];
}

}  // namespace

void count_patterns(Stored stored, const void* x, const Rows& rows, std::uint32_t* tables, PatternRange& range) {
  HWY_DYNAMIC_DISPATCH(RangeOf)(stored, x, rows, range);
  for (std::size_t r = 0; r < rows.count; ++r) {
    if (stored == Stored::f32)
      count_upper_halves(static_cast<const std::uint32_t*>(x) + r * rows.stride, rows.length, tables);
    else
      count_halves(static_cast<const std::uint16_t*>(x) + r * rows.stride, rows.length, tables);
  }
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
