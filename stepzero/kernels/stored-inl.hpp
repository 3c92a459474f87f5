// Numbers as they are stored, loaded as floats. Included once for every target.
#if defined(STEPZERO_KERNELS_STORED_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef STEPZERO_KERNELS_STORED_INL_HPP
#undef STEPZERO_KERNELS_STORED_INL_HPP
#else
#define STEPZERO_KERNELS_STORED_INL_HPP
#endif

#include <hwy/highway.h>

#include "stepzero/core/half.hpp"

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
// Of 16-bit types also sizes as patterns: the smallest normal number, and between which the fourth power is a float's.
// First and Second are the two halves of a vector of patterns, in any order.
struct LoadBrain {
  using Type = std::uint16_t;
  static constexpr float kSmallest = 0x1p-126F;  // normal number
  static constexpr std::uint16_t kSmallestPattern = 0x0080, kSmallPattern = 0x3280, kHugePattern = 0x4C80;  // 2^-26, 2^26
  static float One(const std::uint16_t* x) { return bfloat16_to_float(*x); }
  static auto Load(Floats d, const std::uint16_t* x) {
    const hn::RebindToUnsigned<Floats> words;
    const hn::Rebind<std::uint16_t, Floats> halves;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::LoadU(halves, x))));
  }
#if HWY_TARGET != HWY_SCALAR
  template <class V>
  static HWY_INLINE auto First(Floats d, V v) {
    const hn::RebindToUnsigned<Floats> words;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::BitCast(words, v)));
  }
  template <class V>
  static HWY_INLINE auto Second(Floats d, V v) {
    const hn::RebindToUnsigned<Floats> words;
    return hn::BitCast(d, hn::And(hn::BitCast(words, v), hn::Set(words, 0xFFFF0000U)));
  }
#endif
};
struct LoadHalf {
  using Type = std::uint16_t;
  static constexpr float kSmallest = 0x1p-14F;                                                              // normal number
  static constexpr std::uint16_t kSmallestPattern = 0x0400, kSmallPattern = 0x0000, kHugePattern = 0x7C00;  // 0, Inf
  static float One(const std::uint16_t* x) { return half_to_float(*x); }
  static auto Load(Floats d, const std::uint16_t* x) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(d, hn::LoadU(halves, reinterpret_cast<const hwy::float16_t*>(x)));
  }
#if HWY_TARGET != HWY_SCALAR
  template <class V>
  static HWY_INLINE auto First(Floats d, V v) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(d, hn::BitCast(halves, hn::LowerHalf(v)));
  }
  template <class V>
  static HWY_INLINE auto Second(Floats d, V v) {
    const hn::Rebind<hwy::float16_t, Floats> halves;
    return hn::PromoteTo(d, hn::BitCast(halves, hn::UpperHalf(hn::Half<hn::ScalableTag<std::uint16_t>>(), v)));
  }
#endif
};

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
