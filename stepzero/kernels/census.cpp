#include "stepzero/kernels/census.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/census.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "stepzero/io/half.hpp"

#ifndef STEPZERO_CENSUS_PLAIN
#define STEPZERO_CENSUS_PLAIN
namespace stepzero::kernels {
namespace {

inline constexpr std::size_t kRun = 4096;  // numbers summed at a time: with one that is not finite the run is read again

// One number at a time, for runs that hold NaN or Inf and for what is left over.
inline void add_number(PowerSums& out, float x, float smallest) {
  if (!std::isfinite(x)) {
    ++(std::isnan(x) ? out.nans : out.infs);
    return;
  }
  ++out.count;
  out.zeros += x == 0 ? 1 : 0;
  out.subnormals += x != 0 && std::abs(x) < smallest ? 1 : 0;
  out.min = std::min(out.min, static_cast<double>(x));
  out.max = std::max(out.max, static_cast<double>(x));
  const double d = static_cast<double>(x) - out.pivot;
  out.sums[0] += d;
  out.sums[1] += d * d;
  out.sums[2] += d * d * d;
  out.sums[3] += (d * d) * (d * d);
}

}  // namespace
}  // namespace stepzero::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;

struct LoadFloat {
  using Type = float;
  static constexpr float kSmallest = 0x1p-126F;  // normal number
  static float One(const float* x) { return *x; }
  static auto Load(Floats d, const float* x) { return hn::LoadU(d, x); }
};
struct LoadBrain {
  using Type = std::uint16_t;
  static constexpr float kSmallest = 0x1p-126F;  // normal number
  static float One(const std::uint16_t* x) { return bfloat16_to_float(*x); }
  static auto Load(Floats d, const std::uint16_t* x) {
    const hn::RebindToUnsigned<Floats> words;
    const hn::Rebind<std::uint16_t, Floats> halves;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, x))));
  }
};
struct LoadHalf {
  using Type = std::uint16_t;
  static constexpr float kSmallest = 0x1p-14F;  // normal number
  static float One(const std::uint16_t* x) { return half_to_float(*x); }
  static auto Load(Floats d, const std::uint16_t* x) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(x)));
  }
};

#if HWY_TARGET == HWY_SCALAR  // no register to split in halves

template <class L>
bool SumRun(const typename L::Type* x, std::size_t n, PowerSums& out) {
  for (std::size_t i = 0; i < n; ++i) add_number(out, L::One(x + i), L::kSmallest);
  return true;
}
template <class L>
bool SumRun16(const typename L::Type* x, std::size_t n, PowerSums& out) {
  return SumRun<L>(x, n, out);
}

#else

// What a run leaves besides its sums; false when a number is not finite.
template <class L, class Add>
HWY_INLINE bool EachOf(const typename L::Type* x, std::size_t n, PowerSums& out, Add add) {
  const Floats df;
  const hn::RebindToUnsigned<Floats> du;
  const std::size_t lanes = hn::Lanes(df);
  auto low = L::Load(df, x), high = low;
  auto largest = hn::BitCast(du, hn::Abs(low)), tiniest = largest;
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto v = L::Load(df, x + i);
    const auto size = hn::BitCast(du, hn::Abs(v));
    largest = hn::Max(largest, size);
    tiniest = hn::Min(tiniest, size);
    low = hn::Min(v, low);
    high = hn::Max(v, high);
    add(v);
  }
  if (!hn::AllTrue(du, hn::Lt(largest, hn::Set(du, 0x7F800000U)))) return false;
  out.count += n;
  out.min = std::min(out.min, static_cast<double>(hn::GetLane(hn::MinOfLanes(df, low))));
  out.max = std::max(out.max, static_cast<double>(hn::GetLane(hn::MaxOfLanes(df, high))));
  const auto smallest = hn::BitCast(du, hn::Set(df, L::kSmallest));
  if (hn::AllFalse(du, hn::Lt(tiniest, smallest))) return true;
  std::size_t tiny = 0, zeros = 0;  // seldom: most runs of weights have none
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto size = hn::BitCast(du, hn::Abs(L::Load(df, x + i)));
    tiny += hn::CountTrue(du, hn::Lt(size, smallest));
    zeros += hn::CountTrue(du, hn::Eq(size, hn::Zero(du)));
  }
  out.zeros += zeros;
  out.subnormals += tiny - zeros;
  return true;
}

using Doubles = hn::Repartition<double, Floats>;

struct Sums {
  hn::Vec<Doubles> s1, s2, s3, s4;
};

HWY_INLINE void AddTo(PowerSums& out, const Sums& s) {
  const Doubles dd;
  out.sums[0] += hn::GetLane(hn::SumOfLanes(dd, s.s1));
  out.sums[1] += hn::GetLane(hn::SumOfLanes(dd, s.s2));
  out.sums[2] += hn::GetLane(hn::SumOfLanes(dd, s.s3));
  out.sums[3] += hn::GetLane(hn::SumOfLanes(dd, s.s4));
}

// Every number in double.
template <class L>
bool SumRun(const typename L::Type* x, std::size_t n, PowerSums& out) {
  const Doubles dd;
  const auto pivot = hn::Set(dd, out.pivot);
  const auto none = hn::Zero(dd);
  Sums s{none, none, none, none};
  const auto half = [&](auto v) HWY_ATTR {
    const auto d = hn::Sub(v, pivot), square = hn::Mul(d, d);
    s.s1 = hn::Add(s.s1, d);
    s.s2 = hn::Add(s.s2, square);
    s.s3 = hn::MulAdd(square, d, s.s3);
    s.s4 = hn::MulAdd(square, square, s.s4);
  };
  const bool fine = EachOf<L>(x, n, out, [&](auto v) HWY_ATTR {
    half(hn::PromoteTo(dd, hn::LowerHalf(v)));
    half(hn::PromoteTo(dd, hn::UpperHalf(hn::Half<Floats>(), v)));
  });
  if (fine) AddTo(out, s);
  return fine;
}

// Numbers of 16 bits: 16 at a time in float, where their squares are exact, then on in double. Only where no power can
// overflow or vanish.
template <class L>
bool SumRun16(const typename L::Type* x, std::size_t n, PowerSums& out) {
  const Floats df;
  const Doubles dd;
  const auto pivot = hn::Set(df, static_cast<float>(out.pivot));
  const auto none = hn::Zero(dd);
  Sums s{none, none, none, none};
  auto t1 = hn::Zero(df), t2 = t1, t3 = t1, t4 = t1;
  const auto flush = [&](auto& from, auto& to) HWY_ATTR {
    to = hn::Add(to, hn::Add(hn::PromoteTo(dd, hn::LowerHalf(from)), hn::PromoteTo(dd, hn::UpperHalf(hn::Half<Floats>(), from))));
    from = hn::Zero(df);
  };
  std::size_t terms = 0;
  PowerSums own;
  const bool fine = EachOf<L>(x, n, own, [&](auto v) HWY_ATTR {
    const auto d = hn::Sub(v, pivot), square = hn::Mul(d, d);
    t1 = hn::Add(t1, d);
    t2 = hn::Add(t2, square);
    t3 = hn::MulAdd(square, d, t3);
    t4 = hn::MulAdd(square, square, t4);
    if (++terms % 16 != 0) return;
    flush(t1, s.s1);
    flush(t2, s.s2);
    flush(t3, s.s3);
    flush(t4, s.s4);
  });
  const double reach = std::max(std::abs(own.min - out.pivot), std::abs(own.max - out.pivot));
  if (!fine || reach < 1e-8 || reach > 1e8) return SumRun<L>(x, n, out);
  flush(t1, s.s1);
  flush(t2, s.s2);
  flush(t3, s.s3);
  flush(t4, s.s4);
  own.pivot = out.pivot;
  AddTo(own, s);
  out.merge(own);
  return true;
}

#endif

template <class L>
PowerSums SumAll(const typename L::Type* x, std::size_t n, double pivot) {
  PowerSums out;
  out.pivot = pivot;
  const std::size_t lanes = hn::Lanes(Floats());
  for (std::size_t first = 0; first < n; first += kRun) {
    const std::size_t count = std::min(kRun, n - first), whole = count - count % lanes;
    bool fine = whole == 0;
    if (!fine && sizeof(typename L::Type) == 2)
      fine = SumRun16<L>(x + first, whole, out);
    else if (!fine)
      fine = SumRun<L>(x + first, whole, out);
    for (std::size_t i = first + (fine ? whole : 0); i < first + count; ++i) add_number(out, L::One(x + i), L::kSmallest);
  }
  return out;
}

PowerSums SumsOf(Stored stored, const void* x, std::size_t n, double pivot) {
  if (stored == Stored::f32) return SumAll<LoadFloat>(static_cast<const float*>(x), n, pivot);
  const auto* words = static_cast<const std::uint16_t*>(x);
  return stored == Stored::bf16 ? SumAll<LoadBrain>(words, n, pivot) : SumAll<LoadHalf>(words, n, pivot);
}

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

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(SumsOf);
HWY_EXPORT(StepOf);

void PowerSums::merge(const PowerSums& other) {
  for (int k = 0; k < 4; ++k) sums[k] += other.sums[k];
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  count += other.count;
  zeros += other.zeros;
  subnormals += other.subnormals;
  nans += other.nans;
  infs += other.infs;
}

PowerSums power_sums(Stored stored, const void* x, std::size_t n, double pivot) {
  return HWY_DYNAMIC_DISPATCH(SumsOf)(stored, x, n, pivot);
}

float gram_step(Stored stored, const void* w, std::size_t n, const float* v, float* z) {
  return HWY_DYNAMIC_DISPATCH(StepOf)(stored, w, n, v, z);
}

void count_patterns(const std::uint16_t* x, std::size_t n, std::uint32_t* counts) {
  std::uint32_t *const even = counts, *const odd = counts + kPatterns;
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

void count_upper_halves(const float* x, std::size_t n, std::uint32_t* counts) {
  std::uint32_t *const even = counts, *const odd = counts + kPatterns;
  std::size_t i = 0;
  for (; i + 2 <= n; i += 2) {
    ++even[std::bit_cast<std::uint32_t>(x[i]) >> 16];
    ++odd[std::bit_cast<std::uint32_t>(x[i + 1]) >> 16];
  }
  for (; i < n; ++i) ++even[std::bit_cast<std::uint32_t>(x[i]) >> 16];
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
