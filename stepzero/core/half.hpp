#pragma once
// The two 16-bit floats of model files. Widened, every bit pattern is exact: denormals are values (also on a machine
// set to flush them), NaN keeps its payload. Narrowed, numbers go to the nearest, ties to the even one; those from the
// bound on would become infinite, and the caller has to look (kernels/to_half.hpp does).
#include <bit>
#include <cstdint>

namespace stepzero {

constexpr float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = half >> 10 & 31U;
  const std::uint32_t fraction = half & 1023U;
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
  const std::uint32_t special = 0x7F800000U | fraction << 13;
  const std::uint32_t normal = (exponent + 112) << 23 | fraction << 13;
  return std::bit_cast<float>(sign | (exponent == 0 ? denormal : exponent == 31 ? special : normal));
}

constexpr float bfloat16_to_float(std::uint16_t brain) { return std::bit_cast<float>(static_cast<std::uint32_t>(brain) << 16); }

inline constexpr std::uint32_t kBfloat16Bound = 0x7F7F8000;  // bits of the smallest size that does not fit
inline constexpr std::uint32_t kHalfBound = 0x477FF000;      // 65520

constexpr std::uint16_t float_to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

constexpr std::uint16_t float_to_half(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t size = bits & 0x7FFFFFFFU;
  // below 2^-14: next to 1/2 floats lie 2^-24 apart, as halves do down there
  const std::uint32_t denormal = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5F) - 0x3F000000U;
  const std::uint32_t normal = (size - 0x38000000U + 0xFFFU + (size >> 13 & 1U)) >> 13;
  return static_cast<std::uint16_t>(sign | (size < 0x38800000U ? denormal : normal));
}

}  // namespace stepzero
