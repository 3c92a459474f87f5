#pragma once
// Floats to 16 bits, to the nearest, ties to even; the same bits on every SIMD level. False: a number does not fit
// (it would become infinite, or is not finite), and the output is not to be used.
#include <cstdint>
#include <span>

namespace stepzero::kernels {

bool narrow_to_bfloat16(std::span<const float> from, std::uint16_t* to);
bool narrow_to_half(std::span<const float> from, std::uint16_t* to);

}  // namespace stepzero::kernels
