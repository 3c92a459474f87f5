#include "stepzero/kernels/census.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/census.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "stepzero/kernels/stored-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

// R rows at once: v is read, z read and written once for all of them. A row's y has the same bits in any company.
template <class L, int R>
void Step(const typename L::Type* w, std::size_t stride, std::size_t n, const float* v, float* z, float* y) {
  const Floats df;
  const std::size_t lanes = hn::Lanes(df);
  hn::Vec<Floats> even[R], odd[R];
  for (int r = 0; r < R; ++r) even[r] = odd[r] = hn::Zero(df);
  std::size_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto v0 = hn::LoadU(df, v + i), v1 = hn::LoadU(df, v + i + lanes);
    for (int r = 0; r < R; ++r) {
      const auto* const row = w + static_cast<std::size_t>(r) * stride + i;
      hwy::Prefetch(row + R * stride);
      even[r] = hn::MulAdd(L::Load(df, row), v0, even[r]);
      odd[r] = hn::MulAdd(L::Load(df, row + lanes), v1, odd[r]);
    }
  }
  hn::Vec<Floats> all[R];
  for (int r = 0; r < R; ++r) {
    const auto* const row = w + static_cast<std::size_t>(r) * stride;
    y[r] = hn::GetLane(hn::SumOfLanes(df, hn::Add(even[r], odd[r])));
    for (std::size_t k = i; k < n; ++k) y[r] = std::fma(L::One(row + k), v[k], y[r]);
    all[r] = hn::Set(df, y[r]);
  }
  for (i = 0; i + lanes <= n; i += lanes) {
    auto sum = hn::LoadU(df, z + i);
    for (int r = 0; r < R; ++r) sum = hn::MulAdd(all[r], L::Load(df, w + static_cast<std::size_t>(r) * stride + i), sum);
    hn::StoreU(sum, df, z + i);
  }
  for (; i < n; ++i) {
    for (int r = 0; r < R; ++r) z[i] = std::fma(y[r], L::One(w + static_cast<std::size_t>(r) * stride + i), z[i]);
  }
}

template <class L>
void Steps(const typename L::Type* w, const Rows& rows, const float* v, float* z, float* y) {
  std::size_t r = 0;
  for (; r + 4 <= rows.count; r += 4) Step<L, 4>(w + r * rows.stride, rows.stride, rows.length, v, z, y + r);
  for (; r < rows.count; ++r) Step<L, 1>(w + r * rows.stride, rows.stride, rows.length, v, z, y + r);
}

void StepsOf(Stored stored, const void* w, const Rows& rows, const float* v, float* z, float* y) {
  if (stored == Stored::f32) return Steps<LoadFloat>(static_cast<const float*>(w), rows, v, z, y);
  const auto* words = static_cast<const std::uint16_t*>(w);
  return stored == Stored::bf16 ? Steps<LoadBrain>(words, rows, v, z, y) : Steps<LoadHalf>(words, rows, v, z, y);
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

HWY_EXPORT(StepsOf);
HWY_EXPORT(RangeOf);

void gram_steps(Stored stored, const void* w, const Rows& rows, const float* v, float* z, float* y) {
  HWY_DYNAMIC_DISPATCH(StepsOf)(stored, w, rows, v, z, y);
}

namespace {

// Bytes from here that the second cache is asked for: counting leaves memory idle, what follows does not.
constexpr std::size_t kAhead = 65536;

void count_halves(const std::uint16_t* x, std::size_t n, std::uint32_t* tables) {
  std::uint32_t *const even = tables, *const odd = tables + kPatterns;
  std::size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __builtin_prefetch(reinterpret_cast<const char*>(x + i) + kAhead, 0, 2);
    for (std::size_t k = i; k < i + 32; k += 8) {
      std::uint64_t a = 0, b = 0;
      std::memcpy(&a, x + k, sizeof a);
      std::memcpy(&b, x + k + 4, sizeof b);
      ++even[a & 0xFFFFU];
      ++odd[b & 0xFFFFU];
      ++even[a >> 16 & 0xFFFFU];
      ++odd[b >> 16 & 0xFFFFU];
      ++even[a >> 32 & 0xFFFFU];
      ++odd[b >> 32 & 0xFFFFU];
      ++even[a >> 48];
      ++odd[b >> 48];
    }
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
