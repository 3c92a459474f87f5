// Sums of powers, extremes and special numbers of a tensor as it is stored.
//
// Floats are summed in double. Numbers of 16 bits are summed in float, a burst at a time, where their squares are exact,
// then on in double; their extremes are those of the bit patterns: taken as signed integers the largest is the largest
// positive number, as unsigned ones the most negative. A run that holds zeros, tiny, huge or no numbers is read again.
#include "stepzero/kernels/census.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/power_sums.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "stepzero/kernels/stored-inl.hpp"

#ifndef STEPZERO_POWER_SUMS_PLAIN
#define STEPZERO_POWER_SUMS_PLAIN
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

template <class L>
void AddEach(const typename L::Type* x, std::size_t n, PowerSums& out) {
  for (std::size_t i = 0; i < n; ++i) add_number(out, L::One(x + i), L::kSmallest);
}

#if HWY_TARGET == HWY_SCALAR  // no register to split in halves

template <class L>
PowerSums SumRows(const typename L::Type* x, const Rows& rows, double pivot) {
  PowerSums out;
  out.pivot = pivot;
  for (std::size_t r = 0; r < rows.count; ++r) AddEach<L>(x + r * rows.stride, rows.length, out);
  return out;
}

#else

using Doubles = hn::Repartition<double, Floats>;
using Words = hn::RebindToUnsigned<Floats>;

HWY_INLINE double SumOf(hn::Vec<Doubles> v) { return hn::GetLane(hn::SumOfLanes(Doubles(), v)); }

// A run of whole vectors in double; false, and nothing done, when a number is not finite.
template <class L>
bool SumRun(const typename L::Type* x, std::size_t n, PowerSums& out) {
  const Floats df;
  const Doubles dd;
  const Words du;
  const hn::Half<Floats> half;
  const std::size_t lanes = hn::Lanes(df);
  const auto pivot = hn::Set(dd, out.pivot);
  auto s1 = hn::Zero(dd), s2 = s1, s3 = s1, s4 = s1;
  const auto add = [&](auto v) HWY_ATTR {
    const auto d = hn::Sub(v, pivot), square = hn::Mul(d, d);
    s1 = hn::Add(s1, d);
    s2 = hn::Add(s2, square);
    s3 = hn::MulAdd(square, d, s3);
    s4 = hn::MulAdd(square, square, s4);
  };
  auto low = L::Load(df, x), high = low;
  auto largest = hn::BitCast(du, hn::Abs(low)), tiniest = largest;
  for (std::size_t i = 0; i < n; i += lanes) {
    const auto v = L::Load(df, x + i);
    const auto size = hn::BitCast(du, hn::Abs(v));
    largest = hn::Max(largest, size);
    tiniest = hn::Min(tiniest, size);
    low = hn::Min(v, low);
    high = hn::Max(v, high);
    add(hn::PromoteTo(dd, hn::LowerHalf(v)));
    add(hn::PromoteTo(dd, hn::UpperHalf(half, v)));
  }
  if (!hn::AllTrue(du, hn::Lt(largest, hn::Set(du, 0x7F800000U)))) return false;
  out.count += n;
  out.min = std::min(out.min, static_cast<double>(hn::GetLane(hn::MinOfLanes(df, low))));
  out.max = std::max(out.max, static_cast<double>(hn::GetLane(hn::MaxOfLanes(df, high))));
  out.sums[0] += SumOf(s1);
  out.sums[1] += SumOf(s2);
  out.sums[2] += SumOf(s3);
  out.sums[3] += SumOf(s4);
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

using Patterns = hn::ScalableTag<std::uint16_t>;
using SignedPatterns = hn::RebindToSigned<Patterns>;

// Of the patterns seen, in each lane.
struct Extremes {
  hn::Vec<SignedPatterns> top, bottom;
  hn::Vec<Patterns> high, low;

  explicit Extremes(hn::Vec<Patterns> v) : top(hn::BitCast(SignedPatterns(), v)), bottom(top), high(v), low(v) {}
  HWY_INLINE void Add(const Extremes& other) {
    top = hn::Max(top, other.top);
    bottom = hn::Min(bottom, other.bottom);
    high = hn::Max(high, other.high);
    low = hn::Min(low, other.low);
  }
  // Whether a size of `pattern` or more was seen; whether a smaller one.
  [[nodiscard]] HWY_INLINE bool Reach(std::uint16_t pattern) const {
    const Patterns d;
    const auto above = hn::Gt(top, hn::Set(SignedPatterns(), static_cast<std::int16_t>(pattern - 1)));
    const auto below = hn::Gt(high, hn::Set(d, static_cast<std::uint16_t>((0x8000U | pattern) - 1)));
    return !hn::AllFalse(SignedPatterns(), above) || !hn::AllFalse(d, below);
  }
  [[nodiscard]] HWY_INLINE bool Below(std::uint16_t pattern) const {
    const Patterns d;
    const auto above = hn::Lt(low, hn::Set(d, pattern));
    const auto below = hn::Lt(bottom, hn::Set(SignedPatterns(), static_cast<std::int16_t>(0x8000U | pattern)));
    return !hn::AllFalse(d, above) || !hn::AllFalse(SignedPatterns(), below);
  }
};

// Smallest and largest of the numbers behind the patterns.
template <class L>
void Put(const Extremes& e, PowerSums& out) {
  const Patterns d;
  std::array<std::int16_t, 128> top;  // more lanes than any vector has
  std::array<std::uint16_t, 128> high, low;
  hn::StoreU(e.top, SignedPatterns(), top.data());
  hn::StoreU(e.high, d, high.data());
  hn::StoreU(e.low, d, low.data());
  const auto lanes = static_cast<std::ptrdiff_t>(hn::Lanes(d));
  const std::uint16_t most = *std::max_element(high.begin(), high.begin() + lanes),
                      least = *std::min_element(low.begin(), low.begin() + lanes);
  const auto positive = static_cast<std::uint16_t>(*std::max_element(top.begin(), top.begin() + lanes));
  const std::uint16_t smallest = most >= 0x8000U ? most : least, largest = positive < 0x8000U ? positive : least;
  out.min = std::min(out.min, static_cast<double>(L::One(&smallest)));
  out.max = std::max(out.max, static_cast<double>(L::One(&largest)));
}

template <class L>
void CountTiny(const std::uint16_t* x, std::size_t n, PowerSums& out) {
  const Patterns d;
  std::size_t tiny = 0, zeros = 0;
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto size = hn::And(hn::LoadU(d, x + i), hn::Set(d, std::uint16_t{0x7FFF}));
    tiny += hn::CountTrue(d, hn::Lt(size, hn::Set(d, L::kSmallestPattern)));
    zeros += hn::CountTrue(d, hn::Eq(size, hn::Zero(d)));
  }
  out.zeros += zeros;
  out.subnormals += tiny - zeros;
}

struct DoubleSums {
  hn::Vec<Doubles> s1, s2, s3, s4;
};

HWY_INLINE void Flush(hn::Vec<Floats> from, hn::Vec<Doubles>& to) {
  const Doubles dd;
  to = hn::Add(to, hn::Add(hn::PromoteTo(dd, hn::LowerHalf(from)), hn::PromoteTo(dd, hn::UpperHalf(hn::Half<Floats>(), from))));
}

// Vectors whose powers are summed in float: the rounding of so few is 1e-7 in one lane, and less over all.
inline constexpr std::size_t kBurst = 16;

// Numbers from here that are asked for already: the processor's own prefetcher stops at every page of 4 KB.
inline constexpr std::size_t kAhead = 3072;

template <class L, bool pivoted>
HWY_INLINE Extremes SumBursts(const std::uint16_t* x, std::size_t n, hn::Vec<Floats> pivot, DoubleSums& s) {
  const Floats df;
  const Patterns d;
  const std::size_t lanes = hn::Lanes(d);
  Extremes seen(hn::LoadU(d, x));
  for (std::size_t first = 0; first < n;) {
    const std::size_t end = std::min(n, first + kBurst * lanes);
    auto a1 = hn::Zero(df), a2 = a1, a3 = a1, a4 = a1, b1 = a1, b2 = a1, b3 = a1, b4 = a1;
    for (; first < end; first += lanes) {
      hwy::Prefetch(x + first + kAhead);
      const auto v = hn::LoadU(d, x + first);
      seen.Add(Extremes(v));
      auto a = L::First(df, v), b = L::Second(df, v);
      if constexpr (pivoted) {
        a = hn::Sub(a, pivot);
        b = hn::Sub(b, pivot);
      }
      const auto aa = hn::Mul(a, a), bb = hn::Mul(b, b);
      a1 = hn::Add(a1, a);
      b1 = hn::Add(b1, b);
      a2 = hn::Add(a2, aa);
      b2 = hn::Add(b2, bb);
      a3 = hn::MulAdd(aa, a, a3);
      b3 = hn::MulAdd(bb, b, b3);
      a4 = hn::MulAdd(aa, aa, a4);
      b4 = hn::MulAdd(bb, bb, b4);
    }
    Flush(hn::Add(a1, b1), s.s1);
    Flush(hn::Add(a2, b2), s.s2);
    Flush(hn::Add(a3, b3), s.s3);
    Flush(hn::Add(a4, b4), s.s4);
  }
  return seen;
}

// In float no power of these may overflow or vanish.
inline bool Moderate(double pivot) { return pivot == 0 || (std::abs(pivot) >= 1e-6 && std::abs(pivot) <= 1e7); }

template <class L, bool pivoted>
PowerSums SumRows16(const std::uint16_t* x, const Rows& rows, double pivot) {
  PowerSums out;
  out.pivot = pivot;
  const Patterns d;
  const auto around = hn::Set(Floats(), static_cast<float>(pivot));
  const auto none = hn::Zero(Doubles());
  DoubleSums total{none, none, none, none};
  Extremes all(hn::Zero(d));
  bool any = false;
  for (std::size_t r = 0; r < rows.count; ++r) {
    const std::uint16_t* const row = x + r * rows.stride;
    for (std::size_t first = 0; first < rows.length; first += kRun) {
      const std::size_t count = std::min(kRun, rows.length - first), whole = count - count % hn::Lanes(d);
      const std::uint16_t* const run = row + first;
      AddEach<L>(run + whole, count - whole, out);
      if (whole == 0) continue;
      DoubleSums s = total;
      const Extremes seen = SumBursts<L, pivoted>(run, whole, around, s);
      if (seen.Reach(L::kHugePattern) || !seen.Reach(L::kSmallPattern)) {
        if (!SumRun<L>(run, whole, out)) AddEach<L>(run, whole, out);
        continue;
      }
      total = s;
      any ? all.Add(seen) : void(all = seen);
      any = true;
      out.count += whole;
      if (seen.Below(L::kSmallestPattern)) CountTiny<L>(run, whole, out);
    }
  }
  if (any) Put<L>(all, out);
  out.sums[0] += SumOf(total.s1);
  out.sums[1] += SumOf(total.s2);
  out.sums[2] += SumOf(total.s3);
  out.sums[3] += SumOf(total.s4);
  return out;
}

template <class L>
PowerSums SumRowsExactly(const typename L::Type* x, const Rows& rows, double pivot) {
  PowerSums out;
  out.pivot = pivot;
  for (std::size_t r = 0; r < rows.count; ++r) {
    for (std::size_t first = 0; first < rows.length; first += kRun) {
      const std::size_t count = std::min(kRun, rows.length - first), whole = count - count % hn::Lanes(Floats());
      const auto* const run = x + r * rows.stride + first;
      AddEach<L>(run + whole, count - whole, out);
      if (whole > 0 && !SumRun<L>(run, whole, out)) AddEach<L>(run, whole, out);
    }
  }
  return out;
}

template <class L>
PowerSums SumRows(const typename L::Type* x, const Rows& rows, double pivot) {
  if constexpr (sizeof(typename L::Type) == 2) {
    if (pivot == 0) return SumRows16<L, false>(x, rows, pivot);
    if (Moderate(pivot)) return SumRows16<L, true>(x, rows, pivot);
  }
  return SumRowsExactly<L>(x, rows, pivot);
}

#endif

PowerSums SumsOf(Stored stored, const void* x, const Rows& rows, double pivot) {
  if (stored == Stored::f32) return SumRows<LoadFloat>(static_cast<const float*>(x), rows, pivot);
  const auto* words = static_cast<const std::uint16_t*>(x);
  return stored == Stored::bf16 ? SumRows<LoadBrain>(words, rows, pivot) : SumRows<LoadHalf>(words, rows, pivot);
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(SumsOf);

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

PowerSums power_sums(Stored stored, const void* x, const Rows& rows, double pivot) {
  return HWY_DYNAMIC_DISPATCH(SumsOf)(stored, x, rows, pivot);
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
