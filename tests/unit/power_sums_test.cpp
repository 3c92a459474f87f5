// The fast sums against plain ones: every scale, sign, length and special number, every pattern of 16 bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/audit/pattern_counts.hpp"
#include "stepzero/core/half.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/kernels/census.hpp"
#include "stepzero/kernels/fill.hpp"

namespace stepzero::kernels {
namespace {

float as_float(Stored stored, std::uint32_t pattern) {
  return stored == Stored::f32    ? std::bit_cast<float>(pattern)
         : stored == Stored::bf16 ? bfloat16_to_float(static_cast<std::uint16_t>(pattern))
                                  : half_to_float(static_cast<std::uint16_t>(pattern));
}

std::uint32_t as_pattern(Stored stored, float x) {
  return stored == Stored::f32 ? std::bit_cast<std::uint32_t>(x) : stored == Stored::bf16 ? float_to_bfloat16(x) : float_to_half(x);
}

// Patterns in memory as they are stored.
struct Numbers {
  Stored stored;
  std::vector<std::uint32_t> wide;
  std::vector<std::uint16_t> narrow;

  Numbers(Stored s, const std::vector<std::uint32_t>& patterns) : stored(s), wide(patterns), narrow(patterns.begin(), patterns.end()) {}
  [[nodiscard]] const void* data() const { return stored == Stored::f32 ? static_cast<const void*>(wide.data()) : narrow.data(); }
};

void expect_plain_sums(const Numbers& x, const Rows& rows, double pivot) {
  const PowerSums fast = power_sums(x.stored, x.data(), rows, pivot);
  PowerSums plain;
  double sizes[4] = {};
  const double smallest = x.stored == Stored::f16 ? 0x1p-14 : 0x1p-126;
  for (std::size_t r = 0; r < rows.count; ++r) {
    for (std::size_t i = 0; i < rows.length; ++i) {
      const double v = static_cast<double>(as_float(x.stored, x.wide[r * rows.stride + i]));
      plain.nans += std::isnan(v) ? 1 : 0;
      plain.infs += std::isinf(v) ? 1 : 0;
      if (!std::isfinite(v)) continue;
      ++plain.count;
      plain.zeros += v == 0 ? 1 : 0;
      plain.subnormals += v != 0 && std::abs(v) < smallest ? 1 : 0;
      plain.min = std::min(plain.min, v);
      plain.max = std::max(plain.max, v);
      for (int k = 0; k < 4; ++k) {
        plain.sums[k] += std::pow(v - pivot, k + 1);
        sizes[k] += std::pow(std::abs(v - pivot), k + 1);
      }
    }
  }
  EXPECT_EQ(fast.count, plain.count);
  EXPECT_EQ(fast.zeros, plain.zeros);
  EXPECT_EQ(fast.subnormals, plain.subnormals);
  EXPECT_EQ(fast.nans, plain.nans);
  EXPECT_EQ(fast.infs, plain.infs);
  EXPECT_EQ(fast.min, plain.min);
  EXPECT_EQ(fast.max, plain.max);
  const double tolerance = x.stored == Stored::f32 ? 1e-12 : 1e-7;
  for (int k = 0; k < 4; ++k) EXPECT_NEAR(fast.sums[k], plain.sums[k], tolerance * sizes[k]) << "power " << k + 1;
}

void expect_plain_counts(const Numbers& x, const Rows& rows) {
  std::vector<std::uint32_t> tables(2 * kPatterns), plain(kPatterns);
  PatternRange range;
  count_patterns(x.stored, x.data(), rows, tables.data(), range);
  PatternCounts counts;
  counts.take(tables.data(), range);
  EXPECT_EQ(std::ranges::count(tables, 0U), std::ssize(tables)) << "a table is not empty";
  for (std::size_t r = 0; r < rows.count; ++r) {
    for (std::size_t i = 0; i < rows.length; ++i) ++plain[x.wide[r * rows.stride + i] >> (x.stored == Stored::f32 ? 16 : 0)];
  }
  std::size_t wrong = 0;
  for (std::uint32_t p = 0; p < kPatterns; ++p) wrong += counts[p] == plain[p] ? 0 : 1;
  EXPECT_EQ(wrong, 0U);
}

TEST(PowerSums, AsPlainOnes) {
  for (const Stored stored : {Stored::f32, Stored::bf16, Stored::f16}) {
    const std::uint32_t inf = stored == Stored::f32    ? 0x7F800000U
                              : stored == Stored::bf16 ? 0x7F80U
                                                       : 0x7C00U,
                        sign = stored == Stored::f32 ? 0x80000000U : 0x8000U;
    for (const double scale :
         stored == Stored::f16 ? std::vector{1e-7, 0.02, 1e4} : std::vector{1e-38, 1e-12, 1e-8, 0.02, 1e8, 1e12, 1e37}) {
      for (const int signs : {-1, 0, 1}) {
        for (const std::size_t length : {1UL, 31UL, 32UL, 65UL, 1024UL, 5000UL}) {
          for (const bool special : {false, true}) {
            const Rows rows{3, length, length + 7};
            std::vector<float> made(rows.count * rows.stride);
            fill(Distribution::normal(1), make_stream(length, "t"), 0, std::span<float>(made));
            std::vector<std::uint32_t> patterns;
            for (const float v : made) {
              const float scaled = static_cast<float>(static_cast<double>(v) * scale);
              patterns.push_back(as_pattern(stored, signs == 0 ? scaled : std::copysign(scaled, static_cast<float>(signs))));
            }
            // not to be seen: what stands between the rows
            for (std::size_t i = length; i < patterns.size(); ++i) {
              if (i % rows.stride >= length) patterns[i] = inf + 1;
            }
            if (special) {
              patterns[0] = sign;
              patterns[length / 2] = 1;  // the smallest of all
              patterns[rows.stride] = inf;
              patterns[2 * rows.stride] = inf | sign | 1;
            }
            SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(stored) << " scale " << scale << " signs " << signs
                                              << " length " << length << " special " << special);
            const Numbers x(stored, patterns);
            expect_plain_sums(x, rows, 0);
            expect_plain_sums(x, rows, static_cast<double>(bfloat16_to_float(float_to_bfloat16(static_cast<float>(0.7 * scale)))));
            expect_plain_counts(x, rows);
          }
        }
      }
    }
  }
}

TEST(PowerSums, EveryPattern) {
  for (const Stored stored : {Stored::bf16, Stored::f16}) {
    std::vector<std::uint32_t> patterns;
    for (std::uint32_t p = 0; p < kPatterns; ++p) patterns.push_back(p);
    const Numbers x(stored, patterns);
    expect_plain_sums(x, {1, kPatterns, kPatterns}, 0);
    expect_plain_counts(x, {1, kPatterns, kPatterns});
    for (std::size_t one = 0; one < kPatterns; one += 97) {  // alone in a vector of its kind
      const Numbers alone(stored, std::vector(64, patterns[one]));
      expect_plain_sums(alone, {1, 64, 64}, 0);
    }
  }
}

}  // namespace
}  // namespace stepzero::kernels
