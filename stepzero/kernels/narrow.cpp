#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/narrow.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <hwy/highway.h>

#include "stepzero/io/half.hpp"
#include "stepzero/kernels/narrow.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

// Plain loops over integers: the compiler makes vectors of them for each level.
template <std::uint16_t (*convert)(float), std::uint32_t bound>
HWY_INLINE bool narrow(const float* from, std::size_t n, std::uint16_t* to) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t size = std::bit_cast<std::uint32_t>(from[i]) & 0x7FFFFFFFU;
    largest = largest > size ? largest : size;
    to[i] = convert(from[i]);
  }
  return largest < bound;
}

bool narrow_to_bfloat16(const float* from, std::size_t n, std::uint16_t* to) {
  return narrow<float_to_bfloat16, kBfloat16Bound>(from, n, to);
}

bool narrow_to_half(const float* from, std::size_t n, std::uint16_t* to) { return narrow<float_to_half, kHalfBound>(from, n, to); }

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
