#pragma once
// Random numbers by the block: every SIMD level, and the plain reference, give the same bits.
//
// Blocks     a block is 32 elements from eight Philox counters. Counter j of block b is the 64-bit number 8 b + j
//            under the stream's upper half; its four outputs are the words
//                lane 2j: first = o1, second = o3;   lane 2j + 1: first = o0, second = o2          (1)
//            (the order in which 64-bit SIMD lanes leave them). Element i of the block, l = i mod 16, is
//                uniform, truncated: made from the first word of lane l if i < 16, else from the second   (2)
//                normal: the first or second coordinate of the point Box-Muller makes from both words     (3)
// Odd word   u = (w | 1) / 2^32 are midpoints: symmetric, never 0, never 1                         (4)
// Radius     r = sqrt(-2 ln u), u = 2^-s (1 + f) with |f| <= 1/3, from all the bits of w: within 1.8 ulp
//            from r = 2.2e-5 to r = 6.66, which is the largest normal ever made                    (5)
// Direction  the angle is within pi/4 of one of the four half-axes, chosen by the two lowest bits; sine and
//            cosine are within 2.5 ulp                                                             (6)
// Uniform    x = signed(w | 1) / 2^31 in [-1, 1]                                                   (7)
// Truncated  z = y P(-ln(1 - y^2)), y = x erf(cut / sqrt 2): the inverse of the distribution function; 1 - |y|
//            comes from the integer, so that tails keep their accuracy: within 4 ulp to |z| = 6.23 (8)
// Value      mean + scale z, rounded once; uniform and truncated values that rounding put outside their bounds
//            are moved to the nearest float inside                                                 (9)
//
// Where code says fused, a b + c is rounded once on every level; SSE4, which has no instruction for it, pays with
// many. Nothing else is fused: compile with -ffp-contract=off.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <numbers>

#include "stepzero/core/random.hpp"

namespace stepzero::kernels {

inline constexpr std::size_t kRandomBlock = 32;

// A distribution as the kernels want it.
struct RandomLaw {
  Distribution::Kind kind = Distribution::Kind::constant;  // constant if nothing is left to choose
  float mean = 0;
  float scale = 0;
  float low = 0;  // bounds of uniform and truncated values, inclusive; the value of a constant
  float high = 0;
  float inner = 0;  // truncated: erf(cut / sqrt 2), the share of the parent inside the cut
  float outer = 0;  //            erfc(cut / sqrt 2)
};

RandomLaw make_law(const Distribution& distribution);

// Blocks [first, first + count) of the tensor, 32 * count floats. `law` is not a constant.
void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out);

namespace random_constants {

// Minimax polynomials (Remez exchange), constant first, for the relative error of the whole function.
// -2 ln(1 + f) / f for |f| <= 1/3: 3e-8, which the square root halves.
inline constexpr float kLog[] = {-2.0F,       0.999998629F,  -0.666663349F, 0.500160515F, -0.400238842F,
                                 0.32825613F, -0.279753596F, 0.308062375F,  -0.281119436F};
// sin(pi x / 2) / x and cos(pi x / 2) in x^2, for |x| <= 1/2: 3e-8 (the rounding of pi / 2) and 4e-10.
inline constexpr float kSin[] = {1.57079637F, -0.64596653F, 0.0797109082F, -0.00468142051F};
inline constexpr float kCos[] = {1.0F, -1.23370051F, 0.253668547F, -0.020855397F, 0.000893862103F};
// z / y of (8): in w - 2.5 for w = -ln(1 - y^2) < 5 (6e-9), beyond in sqrt(w) - 3.5 up to sqrt(w) = 4.72 (2e-8).
inline constexpr float kCentre[] = {2.12331343F,      0.34880203F,      -0.00590771716F, -0.00177164457F, 0.000308785646F,
                                    -7.01923454e-06F, -4.89700187e-06F, 6.59265083e-07F, 3.28557377e-08F, -1.24324506e-08F};
inline constexpr float kTail[] = {4.71708918F,     1.42463529F,      0.00463296752F,  -0.00292728562F, 0.00155352696F, -0.000924037886F,
                                  0.000593585137F, -0.000379312056F, 0.000127478736F, 3.73242401e-05F, -2.9074663e-05F};
inline constexpr float kTailFrom = 5;
inline constexpr float kCentreShift = 2.5F;
inline constexpr float kTailShift = 3.5F;

inline constexpr float kLn2 = std::numbers::ln2_v<float>;
inline constexpr float kTwoToMinus31 = 0x1p-31F;
inline constexpr float kTwoToMinus32 = 0x1p-32F;
inline constexpr std::uint32_t kTwoThirds = std::bit_cast<std::uint32_t>(2.0F / 3);
// y / 2^31 in [2/3, 4/3) 2^-s  <=>  s = (kExponent - bits(y)) >> 23
inline constexpr std::uint32_t kExponent = std::bit_cast<std::uint32_t>(0x1p31F * 4 / 3) - 1;

}  // namespace random_constants

// The specification, one number at a time.
namespace reference {

struct Direction {
  float first;
  float second;
};

float radius(std::uint32_t word);                               // (5)
Direction direction(std::uint32_t word);                        // (6)
float uniform(std::uint32_t word);                              // (7)
float truncated(std::uint32_t word, float inner, float outer);  // (8)
void random_blocks(const RandomLaw& law, const Stream& stream, std::uint64_t first, std::size_t count, float* out);

}  // namespace reference

}  // namespace stepzero::kernels
