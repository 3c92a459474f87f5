#pragma once
// The two 16-bit floats of model files, widened. Every bit pattern is exact: denormals are values (also on a machine
// set to flush them), NaN keeps its payload.
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

}  // namespace stepzero
