#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/to_half.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <hwy/highway.h>

#include <algorithm>
#include <bit>

#include "stepzero/core/half.hpp"
#include "stepzero/kernels/to_half.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::CappedTag<float, 16> df;
constexpr hn::RebindToSigned<decltype(df)> di;
constexpr hn::RebindToUnsigned<decltype(df)> du;
constexpr hn::Rebind<std::uint16_t, decltype(df)> d16;
using I = hn::Vec<decltype(di)>;
using U = hn::Vec<decltype(du)>;

// The same steps as in core/half.hpp, which does the rest of a row.
HWY_INLINE U bfloat16_of(U bits) {
  const U odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7FFFU))));
}

HWY_INLINE U half_of(U bits) {
  const U sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000U));
  const U size = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
  const U denormal = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(df, size), hn::Set(df, 0.5F))), hn::Set(du, 0x3F000000U));
  const U odd = hn::And(hn::ShiftRight<13>(size), hn::Set(du, 1U));
  const U normal = hn::ShiftRight<13>(hn::Add(hn::Sub(size, hn::Set(du, 0x38000000U)), hn::Add(odd, hn::Set(du, 0xFFFU))));
  const auto small = hn::RebindMask(du, hn::Lt(hn::BitCast(di, size), hn::Set(di, 0x38800000)));
  return hn::Or(sign, hn::IfThenElse(small, denormal, normal));
}

template <std::uint32_t bound, class Vector, class One>
HWY_INLINE bool narrow(const float* from, std::size_t n, std::uint16_t* to, const Vector& vector, const One& one) {
  constexpr std::size_t lanes = hn::MaxLanes(df);
  I most = hn::Zero(di);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const U bits = hn::BitCast(du, hn::LoadU(df, from + i));
    most = hn::Max(most, hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7FFFFFFFU))));
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, vector(bits))), d16, to + i);
  }
  std::int32_t sizes[lanes];
  hn::StoreU(most, di, sizes);
  std::uint32_t largest = 0;
  for (const std::int32_t size : sizes) largest = std::max(largest, static_cast<std::uint32_t>(size));
  for (; i < n; ++i) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & 0x7FFFFFFFU);
    to[i] = one(from[i]);
  }
  return largest < bound;
}

bool narrow_to_bfloat16(const float* from, std::size_t n, std::uint16_t* to) {
  return narrow<kBfloat16Bound>(from, n, to, [](U bits) HWY_ATTR { return bfloat16_of(bits); }, float_to_bfloat16);
}

bool narrow_to_half(const float* from, std::size_t n, std::uint16_t* to) {
  return narrow<kHalfBound>(from, n, to, [](U bits) HWY_ATTR { return half_of(bits); }, float_to_half);
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(narrow_to_bfloat16);
HWY_EXPORT(narrow_to_half);

bool narrow_to_bfloat16(std::span<const float> from, std::uint16_t* to) {
  return HWY_DYNAMIC_DISPATCH(narrow_to_bfloat16)(from.data(), from.size(), to);
}

bool narrow_to_half(std::span<const float> from, std::uint16_t* to) {
  return HWY_DYNAMIC_DISPATCH(narrow_to_half)(from.data(), from.size(), to);
}

}  // namespace stepzero::kernels
#endif  // HWY_ONCE
