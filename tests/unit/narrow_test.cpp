// Floats to 16 bits: to the nearest, ties to even, on every SIMD level; what does not fit is told.
#include "stepzero/kernels/to_half.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stepzero/core/half.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"

namespace stepzero {
namespace {

// Between any two neighbours the middle goes to the even one, and what is on either side of it to its own.
template <class Widen, class Narrow>
void check_neighbours(std::uint16_t last, const Widen& widen, const Narrow& narrow) {
  for (std::uint32_t i = 0; i < last; ++i) {
    const auto low = static_cast<std::uint16_t>(i);
    const auto high = static_cast<std::uint16_t>(i + 1);
    const float middle = static_cast<float>((static_cast<double>(widen(low)) + widen(high)) / 2);
    for (const int sign : {0, 0x8000}) {
      const float s = sign != 0 ? -1.0F : 1.0F;
      ASSERT_EQ(narrow(s * widen(low)), low | sign) << i;
      ASSERT_EQ(narrow(s * middle), (i % 2 == 0 ? low : high) | sign) << i;
      ASSERT_EQ(narrow(s * std::nextafter(middle, 0.0F)), low | sign) << i;
      ASSERT_EQ(narrow(s * std::nextafter(middle, std::numeric_limits<float>::infinity())), high | sign) << i;
    }
  }
}

TEST(Narrow, EveryHalfAndItsNeighbour) { check_neighbours(0x7BFF, half_to_float, float_to_half); }
TEST(Narrow, EveryBfloat16AndItsNeighbour) { check_neighbours(0x7F7F, bfloat16_to_float, float_to_bfloat16); }

TEST(Narrow, BoundsAreTheFirstThatDoNotFit) {
  std::vector<std::uint16_t> out(3);
  const auto fits = [&](bool half, float x) {
    const std::vector<float> one = {0.5F, x, 0.25F};
    return half ? kernels::narrow_to_half(one, out.data()) : kernels::narrow_to_bfloat16(one, out.data());
  };
  for (const float sign : {1.0F, -1.0F}) {
    EXPECT_TRUE(fits(true, sign * std::nextafter(65520.0F, 0.0F)));
    EXPECT_EQ(half_to_float(out[1]), sign * 65504);
    EXPECT_FALSE(fits(true, sign * 65520.0F));
    EXPECT_TRUE(fits(false, sign * std::bit_cast<float>(kBfloat16Bound - 1)));
    EXPECT_FALSE(fits(false, sign * std::bit_cast<float>(kBfloat16Bound)));
    EXPECT_FALSE(fits(false, sign * std::numeric_limits<float>::infinity()));
  }
  EXPECT_FALSE(fits(true, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_FALSE(fits(false, std::numeric_limits<float>::quiet_NaN()));
}

TEST(Narrow, EverySimdLevelGivesTheSameBits) {
  std::vector<float> x(10'007);
  for (const double scale : {0.02, 1e-6, 1e3}) {
    fill(Distribution::normal(scale), make_stream(1, "narrow"), 0, std::span<float>(x));
    std::vector<std::uint16_t> got(x.size());
    for (const std::int64_t level : hwy::SupportedAndGeneratedTargets()) {
      hwy::SetSupportedTargetsForTest(level);
      hwy::GetChosenTarget().Update(hwy::SupportedTargets());
      ASSERT_TRUE(kernels::narrow_to_half(x, got.data()));
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], float_to_half(x[i])) << hwy::TargetName(level);
      ASSERT_TRUE(kernels::narrow_to_bfloat16(x, got.data()));
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(got[i], float_to_bfloat16(x[i])) << hwy::TargetName(level);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace
}  // namespace stepzero
