#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/random_fill.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <hwy/highway.h>

#include "stepzero/core/philox.hpp"
#include "stepzero/kernels/random_fill.hpp"

#ifndef STEPZERO_RANDOM_FILL_ONCE
#define STEPZERO_RANDOM_FILL_ONCE

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace stepzero::kernels {

using namespace random_constants;

namespace reference {

namespace {

template <std::size_t N>
float horner(float x, const float (&c)[N]) {
  float sum = c[N - 1];
  for (std::size_t i = N - 1; i-- > 0;) sum = std::fma(sum, x, c[i]);
  return sum;
}

float signed_float(std::uint32_t word) { return static_cast<float>(static_cast<std::int32_t>(word)); }

float place(const RandomLaw& law, float z) { return std::fma(z, law.scale, law.mean); }  // (9)

void random_block(const RandomLaw& law, const Stream& stream, std::uint64_t block, float* out) {
  for (std::uint32_t lane = 0; lane < 16; ++lane) {
    const std::uint64_t n = block * 8 + lane / 2;
    const philox::Counter o = philox4x32_10({static_cast<std::uint32_t>(n), static_cast<std::uint32_t>(n >> 32),
                                             static_cast<std::uint32_t>(stream.high), static_cast<std::uint32_t>(stream.high >> 32)},
                                            stream.key);
    const std::uint32_t words[] = {lane % 2 == 0 ? o[1] : o[0], lane % 2 == 0 ? o[3] : o[2]};  // (1)
    if (law.kind == Distribution::Kind::normal) {
      const float r = radius(words[0]);
      const Direction to = direction(words[1]);
      out[lane] = place(law, r * to.first);  // (3)
      out[lane + 16] = place(law, r * to.second);
      continue;
    }
    for (int half = 0; half < 2; ++half) {  // (2)
      const float z = law.kind == Distribution::Kind::uniform ? uniform(words[half]) : truncated(words[half], law.inner, law.outer);
      out[lane + 16 * half] = std::min(std::max(place(law, z), law.low), law.high);
    }
  }
}

}  // namespace

float radius(std::uint32_t word) {
  const std::uint32_t odd = word | 1;  // (4)
  const float y = signed_float(odd >> 1) + 0.5F;
  const std::uint32_t s = (kExponent - std::bit_cast<std::uint32_t>(y)) >> 23;
  const float f = signed_float(s < 32 ? odd << s : 0) * kTwoToMinus32;
  return std::sqrt(std::fma(static_cast<float>(s), 2 * kLn2, f * horner(f, kLog)));  // (5)
}

Direction direction(std::uint32_t word) {
  const float x = signed_float(word) * kTwoToMinus32;
  const float z = x * x;
  const float sine = x * horner(z, kSin);
  const float cosine = (word & 1) != 0 ? -horner(z, kCos) : horner(z, kCos);
  return (word & 2) != 0 ? Direction{sine, cosine} : Direction{cosine, sine};  // (6)
}

float uniform(std::uint32_t word) { return signed_float(word | 1) * kTwoToMinus31; }  // (7)

float truncated(std::uint32_t word, float inner, float outer) {
  const auto n = static_cast<std::int32_t>(word | 1);
  const float edge = signed_float(0x80000000U - static_cast<std::uint32_t>(std::abs(n))) * kTwoToMinus31;
  const float h = std::fma(edge, inner, outer);                // 1 - |y|
  const auto bits = std::bit_cast<std::int32_t>(h * (2 - h));  // 1 - y^2 = 2^e (1 + f)
  const std::int32_t e = (bits - static_cast<std::int32_t>(kTwoThirds)) >> 23;
  const float f = std::bit_cast<float>(bits - (e << 23)) - 1;
  const float w = std::fma(static_cast<float>(e), -kLn2, 0.5F * (f * horner(f, kLog)));
  const float ratio = w < kTailFrom ? horner(w - kCentreShift, kCentre) : horner(std::sqrt(w) - kTailShift, kTail);
  return signed_float(static_cast<std::uint32_t>(n)) * kTwoToMinus31 * inner * ratio;  // (8)
}

void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) random_block(law, stream, first + i, out + kRandomBlock * i);
}

}  // namespace reference

}  // namespace stepzero::kernels

#endif  // STEPZERO_RANDOM_FILL_ONCE

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out) {
  reference::random_blocks(law, stream, first, count, out);
}

#else

namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, 16> df;
constexpr hn::RebindToSigned<decltype(df)> di;
constexpr hn::RebindToUnsigned<decltype(df)> du;
constexpr hn::RepartitionToWide<decltype(du)> dw;  // 64-bit lanes
using F = hn::Vec<decltype(df)>;
using U = hn::Vec<decltype(du)>;
using W = hn::Vec<decltype(dw)>;

struct Words {
  U first;
  U second;
};
struct Point {
  F first;
  F second;
};

#if HWY_NATIVE_FMA
HWY_INLINE F fused(F a, F b, F c) { return hn::MulAdd(a, b, c); }
#else
constexpr hn::RepartitionToWide<decltype(df)> dd;
constexpr hn::Half<decltype(df)> dh;
using D = hn::Vec<decltype(dd)>;

// a b + c of doubles that hold floats, rounded so that rounding to float again gives what one rounding would: the
// product is exact, and a sum that is not exact is made odd (its last bit says "and something more").
HWY_INLINE D odd_sum(D a, D b, D c) {
  const D product = hn::Mul(a, b);
  const D sum = hn::Add(product, c);
  const D part = hn::Sub(sum, product);
  const D rest = hn::Add(hn::Sub(product, hn::Sub(sum, part)), hn::Sub(c, part));
  const W bits = hn::BitCast(dw, sum);
  const W one = hn::Set(dw, 1U);
  const W nearer = hn::ShiftRight<63>(hn::Xor(bits, hn::BitCast(dw, rest)));  // 1 if the true sum is nearer to 0
  const W moved = hn::Sub(hn::Or(bits, one), hn::ShiftLeft<1>(nearer));
  const auto keep = hn::Or(hn::Eq(rest, hn::Zero(dd)), hn::RebindMask(dd, hn::Eq(hn::And(bits, one), one)));
  return hn::IfThenElse(keep, sum, hn::BitCast(dd, moved));
}

HWY_INLINE F fused(F a, F b, F c) {
  const D low =
      odd_sum(hn::PromoteTo(dd, hn::LowerHalf(dh, a)), hn::PromoteTo(dd, hn::LowerHalf(dh, b)), hn::PromoteTo(dd, hn::LowerHalf(dh, c)));
  const D top =
      odd_sum(hn::PromoteTo(dd, hn::UpperHalf(dh, a)), hn::PromoteTo(dd, hn::UpperHalf(dh, b)), hn::PromoteTo(dd, hn::UpperHalf(dh, c)));
  return hn::Combine(df, hn::DemoteTo(dh, top), hn::DemoteTo(dh, low));
}
#endif

template <std::size_t N>
HWY_INLINE F horner(F x, const float (&c)[N]) {
  F sum = hn::Set(df, c[N - 1]);
  for (std::size_t i = N - 1; i-- > 0;) sum = fused(sum, x, hn::Set(df, c[i]));
  return sum;
}

HWY_INLINE F signed_float(U word) { return hn::ConvertTo(df, hn::BitCast(di, word)); }

// A shift by 32 gives 0 in the instructions of AVX2 and later, but not in what stands in for them before.
HWY_INLINE U shift_left(U word, U by) {
#if HWY_TARGET <= HWY_AVX2
  return hn::Shl(word, by);
#else
  const U half = hn::ShiftRight<1>(by);
  return hn::Shl(hn::Shl(word, half), hn::Sub(by, half));
#endif
}

// The four words of a counter live in the lower halves of 64-bit lanes, where one instruction multiplies them; the
// upper halves hold rubbish that it ignores. The last round shifts the other way, which packs two words in each lane.
// K vectors advance together, because the rounds of one alone leave the processor waiting.
template <int K>
HWY_INLINE void philox_words(W counter, const Stream& stream, Words (&words)[K]) {
  const U m0 = hn::Set(du, philox::kM0);
  const U m1 = hn::Set(du, philox::kM1);
  std::uint32_t k0 = stream.key[0];
  std::uint32_t k1 = stream.key[1];
  W c0[K], c1[K], c2[K], c3[K], product0[K], product1[K];
  for (int i = 0; i < K; ++i) {
    c0[i] = hn::Add(counter, hn::Set(dw, hn::MaxLanes(dw) * i));
    c1[i] = hn::ShiftRight<32>(c0[i]);
    c2[i] = hn::Set(dw, stream.high);
    c3[i] = hn::Set(dw, stream.high >> 32);
  }
  for (int round = 1;; ++round) {
    for (int i = 0; i < K; ++i) {
      product0[i] = hn::MulEven(hn::BitCast(du, c0[i]), m0);
      product1[i] = hn::MulEven(hn::BitCast(du, c2[i]), m1);
    }
    if (round == philox::kRounds) break;
    for (int i = 0; i < K; ++i) {
      c0[i] = hn::Xor3(hn::ShiftRight<32>(product1[i]), c1[i], hn::Set(dw, k0));
      c1[i] = product1[i];
      c2[i] = hn::Xor3(hn::ShiftRight<32>(product0[i]), c3[i], hn::Set(dw, k1));
      c3[i] = product0[i];
    }
    k0 += philox::kW0;
    k1 += philox::kW1;
  }
  for (int i = 0; i < K; ++i) {
    const W first = hn::Xor3(product1[i], hn::ShiftLeft<32>(c1[i]), hn::Set(dw, std::uint64_t{k0} << 32));
    const W second = hn::Xor3(product0[i], hn::ShiftLeft<32>(c3[i]), hn::Set(dw, std::uint64_t{k1} << 32));
    words[i] = {hn::BitCast(du, first), hn::BitCast(du, second)};
  }
}

HWY_INLINE F radius(U word) {
  const U odd = hn::Or(word, hn::Set(du, 1U));
  const F y = hn::Add(signed_float(hn::ShiftRight<1>(odd)), hn::Set(df, 0.5F));
  const U s = hn::ShiftRight<23>(hn::Sub(hn::Set(du, kExponent), hn::BitCast(du, y)));
  const F f = hn::Mul(signed_float(shift_left(odd, s)), hn::Set(df, kTwoToMinus32));
  return hn::Sqrt(fused(signed_float(s), hn::Set(df, 2 * kLn2), hn::Mul(f, horner(f, kLog))));
}

HWY_INLINE Point direction(U word) {
  const F x = hn::Mul(signed_float(word), hn::Set(df, kTwoToMinus32));
  const F z = hn::Mul(x, x);
  const F sine = hn::Mul(x, horner(z, kSin));
  const F cosine = hn::Xor(horner(z, kCos), hn::BitCast(df, hn::ShiftLeft<31>(word)));
  const auto swap = hn::RebindMask(df, hn::TestBit(word, hn::Set(du, 2U)));
  return {hn::IfThenElse(swap, sine, cosine), hn::IfThenElse(swap, cosine, sine)};
}

HWY_INLINE F uniform(U word) { return hn::Mul(signed_float(hn::Or(word, hn::Set(du, 1U))), hn::Set(df, kTwoToMinus31)); }

// -ln(1 - y^2) of (8).
HWY_INLINE F depth(U word, const RandomLaw& law) {
  const U size = hn::BitCast(du, hn::Abs(hn::BitCast(di, hn::Or(word, hn::Set(du, 1U)))));
  const F edge = hn::Mul(signed_float(hn::Sub(hn::Set(du, 0x80000000U), size)), hn::Set(df, kTwoToMinus31));
  const F h = fused(edge, hn::Set(df, law.inner), hn::Set(df, law.outer));
  const auto bits = hn::BitCast(di, hn::Mul(h, hn::Sub(hn::Set(df, 2.0F), h)));
  const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, static_cast<std::int32_t>(kTwoThirds))));
  const F f = hn::Sub(hn::BitCast(df, hn::Sub(bits, hn::ShiftLeft<23>(e))), hn::Set(df, 1.0F));
  return fused(hn::ConvertTo(df, e), hn::Set(df, -kLn2), hn::Mul(hn::Set(df, 0.5F), hn::Mul(f, horner(f, kLog))));
}

HWY_INLINE F centre_ratio(F w) { return horner(hn::Sub(w, hn::Set(df, kCentreShift)), kCentre); }

HWY_INLINE F any_ratio(F w) {
  const F tail = horner(hn::Sub(hn::Sqrt(w), hn::Set(df, kTailShift)), kTail);
  return hn::IfThenElse(hn::Lt(w, hn::Set(df, kTailFrom)), centre_ratio(w), tail);
}

template <int K>
HWY_INLINE void truncated(const RandomLaw& law, const Words (&words)[K], Point (&z)[K]) {
  F deepest = hn::Zero(df);
  Point w[K];
  for (int i = 0; i < K; ++i) {
    w[i] = {depth(words[i].first, law), depth(words[i].second, law)};
    deepest = hn::Max(deepest, hn::Max(w[i].first, w[i].second));
    z[i] = {centre_ratio(w[i].first), centre_ratio(w[i].second)};
  }
  if (!hn::AllTrue(df, hn::Lt(deepest, hn::Set(df, kTailFrom)))) {  // three in a thousand numbers, none if cut < 2.9
    for (int i = 0; i < K; ++i) z[i] = {any_ratio(w[i].first), any_ratio(w[i].second)};
  }
  const F inner = hn::Set(df, law.inner);
  for (int i = 0; i < K; ++i) {
    z[i].first = hn::Mul(hn::Mul(uniform(words[i].first), inner), z[i].first);
    z[i].second = hn::Mul(hn::Mul(uniform(words[i].second), inner), z[i].second);
  }
}

template <Distribution::Kind kKind, int K>
HWY_INLINE void standard(const RandomLaw& law, const Words (&words)[K], Point (&z)[K]) {
  if constexpr (kKind == Distribution::Kind::truncated_normal) {
    truncated(law, words, z);
  } else {
    for (int i = 0; i < K; ++i) {
      if constexpr (kKind == Distribution::Kind::uniform) {
        z[i] = {uniform(words[i].first), uniform(words[i].second)};
      } else {
        const F r = radius(words[i].first);
        z[i] = direction(words[i].second);
        z[i] = {hn::Mul(r, z[i].first), hn::Mul(r, z[i].second)};
      }
    }
  }
}

template <Distribution::Kind kKind>
HWY_INLINE F place(const RandomLaw& law, F z) {
  const F value = fused(z, hn::Set(df, law.scale), hn::Set(df, law.mean));
  if constexpr (kKind == Distribution::Kind::normal) return value;
  return hn::Min(hn::Max(value, hn::Set(df, law.low)), hn::Set(df, law.high));
}

// The vectors [begin, end) of a run of blocks, K at a time; returns where it stopped.
template <Distribution::Kind kKind, int K>
std::size_t make_vectors(const RandomLaw& law, const Stream& stream, std::uint64_t block, std::size_t begin, std::size_t end, float* out) {
  constexpr std::size_t lanes = hn::MaxLanes(df);
  constexpr std::size_t in_block = 16 / lanes;
  W counter = hn::Add(hn::Set(dw, block * 8 + begin * (lanes / 2)), hn::Iota(dw, 0));
  for (; begin + K <= end; begin += K) {
    Words words[K];
    Point z[K];
    philox_words(counter, stream, words);
    standard<kKind>(law, words, z);
    for (int i = 0; i < K; ++i) {
      float* to = out + (begin + i) / in_block * kRandomBlock + (begin + i) % in_block * lanes;
      hn::StoreU(place<kKind>(law, z[i].first), df, to);  // other output types (bf16, f16) would be rounded here
      hn::StoreU(place<kKind>(law, z[i].second), df, to + 16);
    }
    counter = hn::Add(counter, hn::Set(dw, K * lanes / 2));
  }
  return begin;
}

template <Distribution::Kind kKind>
void make_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out) {
  constexpr int together = 4;  // measured: faster than 2 with AVX2 and AVX-512 alike
  const std::size_t end = count * (16 / hn::MaxLanes(df));
  const std::size_t done = make_vectors<kKind, together>(law, stream, first, 0, end, out);
  make_vectors<kKind, 1>(law, stream, first, done, end, out);
}

}  // namespace

void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out) {
  using Kind = Distribution::Kind;
  if (law.kind == Kind::normal) return make_blocks<Kind::normal>(law, stream, first, count, out);
  if (law.kind == Kind::uniform) return make_blocks<Kind::uniform>(law, stream, first, count, out);
  make_blocks<Kind::truncated_normal>(law, stream, first, count, out);
}

#endif

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(random_blocks);

void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out) {
  HWY_DYNAMIC_DISPATCH(random_blocks)(law, stream, first, count, out);
}

namespace {

// The last float on this side of a bound; strictly, if the bound itself may not occur.
float inside(double bound, float toward, bool strictly) {
  auto x = static_cast<float>(bound);
  const bool up = toward > 0;
  const double wide = x;
  if ((up ? wide < bound : wide > bound) || (strictly && wide == bound)) x = std::nextafter(x, toward);
  return x;
}

}  // namespace

RandomLaw make_law(const Distribution& distribution) {
  using Kind = Distribution::Kind;
  const Kind kind = distribution.kind;
  const double mean = distribution.mean;
  const double scale = distribution.scale;
  const double cut = distribution.cut;
  RandomLaw law{.kind = kind, .mean = static_cast<float>(mean), .scale = static_cast<float>(scale)};
  if (kind == Kind::uniform || kind == Kind::truncated_normal) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const bool strictly = kind == Kind::truncated_normal;
    const double reach = strictly ? cut * scale : scale;
    law.low = inside(mean - reach, infinity, strictly);
    law.high = inside(mean + reach, -infinity, strictly);
    law.inner = static_cast<float>(std::erf(cut / std::numbers::sqrt2));
    law.outer = static_cast<float>(std::erfc(cut / std::numbers::sqrt2));
  }
  if (kind == Kind::constant || scale == 0 || law.low > law.high) {
    law.kind = Kind::constant;
    law.low = law.high = law.mean;
  }
  return law;
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
