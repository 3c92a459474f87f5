// Weights are a function: its bits never change, and its law is the one asked for.
// Statistical bounds are z-scores of 6 on fixed seeds; rounding bounds are in ulp of the float.
#include "stepzero/core/random.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include <Random123/philox.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/philox.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/random_fill.hpp"

namespace stepzero {
namespace {

constexpr double kZ = 6;

const Distribution kLaws[] = {Distribution::normal(1),           Distribution::normal(0.02, 1), Distribution::uniform(1),
                              Distribution::uniform(0.3, -7),    Distribution::truncated(1, 2), Distribution::truncated(0.02, 3, 0.5),
                              Distribution::truncated(1, 0.125), Distribution::truncated(1, 20)};

std::vector<float> draw(const Distribution& law, const Stream& stream, std::uint64_t first, std::size_t n) {
  std::vector<float> out(n);
  fill(law, stream, first, std::span<float>(out));
  return out;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

double mean_of(std::span<const float> x, const std::function<double(double)>& f) {
  double sum = 0;
  for (const float v : x) sum += f(v);
  return sum / static_cast<double>(x.size());
}

double in_ulp(float got, double want) {
  const float size = std::abs(got);
  return std::abs(got - want) / (static_cast<double>(std::nextafter(size, 2 * size + 1)) - size);
}

// Words at both ends, around the sign change, around the powers of two and everywhere else.
std::vector<std::uint32_t> words() {
  std::vector<std::uint32_t> all;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    for (const std::uint32_t start : {0U, 0x80000000U, 0x55555555U, 0xAAAAAAAAU}) {
      all.push_back(start + i);
      all.push_back(start - i);
    }
    for (const std::uint32_t w : philox4x32_10({i, 0, 0, 0}, {1, 2})) {
      for (std::uint32_t shift = 0; shift < 32; ++shift) all.push_back(w >> shift);
    }
  }
  return all;
}

TEST(Philox, GivesTheAnswersOfRandom123) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (philox::Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  r123::Philox4x32 theirs;
  philox::Counter c = {1, 2, 3, 4};
  philox::Key k = {5, 6};
  for (int i = 0; i < 1000; ++i) {
    const auto want = theirs({{c[0], c[1], c[2], c[3]}}, {{k[0], k[1]}});
    const philox::Counter got = philox4x32_10(c, k);
    for (std::size_t j = 0; j < 4; ++j) ASSERT_EQ(got[j], want[j]) << "counter " << i << " word " << j;
    k = {got[0], got[1]};
    c = {got[2], got[3], got[0] ^ got[2], ~got[1]};
  }
}

TEST(Random, ASliceIsThatPartOfTheWhole) {
  const Stream stream = make_stream(7, "slices");
  for (const Distribution& law : kLaws) {
    const std::vector<float> whole = draw(law, stream, 0, 200'000);
    for (std::uint32_t i = 0; i < 200; ++i) {
      const auto w = philox4x32_10({i, 0, 0, 0}, {3, 3});
      const std::size_t first = w[0] % whole.size();
      const std::size_t n = w[1] % std::min<std::size_t>(whole.size() - first, i % 50 == 0 ? 200'000 : 1000);
      ASSERT_TRUE(same_bits(draw(law, stream, first, n), std::span(whole).subspan(first, n))) << first << " + " << n;
    }
  }
  EXPECT_TRUE(draw(kLaws[0], stream, 5, 0).empty());
}

TEST(Random, FarElementsAreThereToo) {
  const Stream stream = make_stream(7, "far");
  const std::uint64_t carry = std::uint64_t{1} << 34;  // here the counter's second word begins to count
  const std::vector<float> across = draw(kLaws[0], stream, carry - 77, 200);
  EXPECT_TRUE(same_bits(draw(kLaws[0], stream, carry - 5, 10), std::span(across).subspan(72, 10)));
  EXPECT_FALSE(same_bits(draw(kLaws[0], stream, carry, 32), draw(kLaws[0], stream, 0, 32)));
  std::vector<float> want(64);
  kernels::reference::random_blocks(kernels::make_law(kLaws[0]), stream, carry / 32 - 1, 2, want.data());
  EXPECT_TRUE(same_bits(draw(kLaws[0], stream, carry - 32, 64), want));
}

TEST(Random, DoublesAreTheFloatsWidened) {
  const Stream stream = make_stream(7, "doubles");
  for (const Distribution& law : kLaws) {
    std::vector<double> wide(10'001);
    fill(law, stream, 13, std::span<double>(wide));
    const std::vector<float> narrow = draw(law, stream, 13, wide.size());
    EXPECT_TRUE(std::ranges::equal(wide, narrow));
  }
}

void on_every_level(const std::function<void(const char*)>& body) {
  for (const std::int64_t level : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(level);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body(hwy::TargetName(level));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

TEST(Random, EverySimdLevelGivesTheBitsOfTheReference) {
  const Stream stream = make_stream(11, "levels");
  // Blocks 22711170 and 33109724 hold words 0 or 1, where the radius is largest and its shift is by 32.
  const std::pair<std::uint64_t, std::size_t> ranges[] = {{0, 2001}, {22'711'170, 3}, {33'109'724, 3}};
  EXPECT_EQ(draw(Distribution::uniform(1), stream, 726'757'455, 1)[0], 0x1p-31F);
  EXPECT_EQ(draw(Distribution::uniform(1), stream, 1'059'511'174, 1)[0], 0x1p-31F);
  for (const Distribution& law : kLaws) {
    for (const auto& [first, blocks] : ranges) {
      std::vector<float> want(blocks * kernels::kRandomBlock);
      kernels::reference::random_blocks(kernels::make_law(law), stream, first, blocks, want.data());
      on_every_level([&, start = first * kernels::kRandomBlock](const char* level) {
        EXPECT_TRUE(same_bits(draw(law, stream, start, want.size()), want)) << level << ", law " << &law - kLaws;
      });
    }
  }
}

TEST(Random, AnyNumberOfThreadsGivesTheSameBits) {
  const Stream stream = make_stream(11, "threads");
  for (const Distribution& law : kLaws) {
    set_threads(1);
    const std::vector<float> one = draw(law, stream, 31, 300'000);
    for (const int n : {2, 3}) {
      set_threads(n);
      EXPECT_TRUE(same_bits(draw(law, stream, 31, one.size()), one)) << n << " threads, law " << &law - kLaws;
    }
  }
  set_threads(0);
}

// If this fails, every seed ever published means other weights: see "Predicted numbers that changed".
TEST(Random, BitsAreFrozen) {
  const Stream stream = make_stream(42, "transformer.h.0.attn.c_attn.weight");
  EXPECT_EQ(stream, (Stream{{0xE1F793E4, 0x88771A55}, 0xD7B7961D1F499BF4}));
  constexpr std::uint64_t golden[] = {0x4CF0DC997E98AAF6, 0x58FFB7E987DBAA00, 0xE2C43887F63C60C6, 0x93B606BBF2EF3012,
                                      0x3F6AF8637BE7390B, 0xD13884B6AC18026B, 0x357F269175549888, 0x1B2CF1572637AFE5};
  for (std::size_t i = 0; i < std::size(kLaws); ++i) {
    std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a of the words
    for (const float x : draw(kLaws[i], stream, 0, 4096)) {
      hash = (hash ^ std::bit_cast<std::uint32_t>(x)) * 0x100000001B3;
    }
    EXPECT_EQ(hash, golden[i]) << fmt::format("law {}: 0x{:016X}", i, hash);
  }
}

TEST(Random, RadiusAndDirectionAreAccurateEverywhere) {
  double radius = 0;
  double cosine = 0;
  double sine = 0;
  for (const std::uint32_t word : words()) {
    const double below_one = (4294967296.0 - (word | 1)) * 0x1p-32;
    radius = std::max(radius, in_ulp(kernels::reference::radius(word), std::sqrt(-2 * std::log1p(-below_one))));
    const std::uint32_t plain = word & ~3U;  // no reflection, no swap
    const double angle = static_cast<std::int32_t>(plain) * 0x1p-32 * std::numbers::pi / 2;
    const auto [first, second] = kernels::reference::direction(plain);
    cosine = std::max(cosine, in_ulp(first, std::cos(angle)));
    sine = std::max(sine, in_ulp(second, std::sin(angle)));
  }
  EXPECT_LE(radius, 1.8);
  EXPECT_LE(cosine, 1.5);
  EXPECT_LE(sine, 2.5);
  EXPECT_NEAR(kernels::reference::radius(0), std::sqrt(64 * std::numbers::ln2), 1e-6);
  EXPECT_GT(kernels::reference::radius(~0U), 0);
}

TEST(Random, DirectionsAreTheFourReflections) {
  const auto at = [](std::uint32_t word) { return kernels::reference::direction(word); };
  const std::uint32_t word = 0x12345670;
  const auto [c, s] = at(word);
  EXPECT_NEAR(at(word + 1).first, -c, 1e-6);
  EXPECT_NEAR(at(word + 1).second, s, 1e-6);
  EXPECT_NEAR(at(word + 2).first, s, 1e-6);
  EXPECT_NEAR(at(word + 2).second, c, 1e-6);
  EXPECT_NEAR(at(word + 3).second, -c, 1e-6);
}

TEST(Random, NormalHasTheMomentsAndTailsOfANormal) {
  constexpr std::size_t n = 1 << 24;
  const std::vector<float> x = draw(Distribution::normal(1), make_stream(1, "moments"), 0, n);
  double sums[4] = {};
  double beyond[6] = {};
  for (const float v : x) {
    const double z = v;
    const double power[4] = {z, z * z, z * z * z, z * z * z * z};
    for (int k = 0; k < 4; ++k) sums[k] += power[k];
    for (int k = 3; k <= 5; ++k) beyond[k] += std::abs(z) > k ? 1 : 0;
  }
  const double moment[] = {0, 1, 0, 3};
  const double variance[] = {1, 2, 15, 96};
  for (int k = 0; k < 4; ++k) {
    const double z = (sums[k] / n - moment[k]) / std::sqrt(variance[k] / n);
    EXPECT_LE(std::abs(z), kZ) << "moment " << k + 1;
  }
  for (int k = 3; k <= 5; ++k) {
    const double p = std::erfc(k / std::numbers::sqrt2);
    EXPECT_LE(std::abs(beyond[k] - n * p) / std::sqrt(n * p), kZ) << "|z| > " << k << ": " << beyond[k];
  }
}

// Chi-square over equally likely cells sees what moments do not.
TEST(Random, ValuesFallEvenlyBetweenQuantiles) {
  constexpr std::size_t n = 1 << 20;
  constexpr std::size_t cells = 256;
  for (const double cut : {0.5, 2.0, 3.0, 20.0}) {
    const bool whole = cut > 10;  // a cut that cuts nothing must give what Box-Muller gives
    for (const Distribution& law : {Distribution::truncated(1, cut), Distribution::normal(1)}) {
      if (law.kind == Distribution::Kind::normal && !whole) continue;
      std::vector<double> count(cells);
      for (const float v : draw(law, make_stream(5, "cells"), 0, n)) {
        const double p = (1 + std::erf(v / std::numbers::sqrt2) / std::erf(cut / std::numbers::sqrt2)) / 2;
        ++count[std::min(static_cast<std::size_t>(p * cells), cells - 1)];
      }
      double chi2 = 0;
      for (const double c : count) chi2 += (c - n / cells) * (c - n / cells) / (n / cells);
      EXPECT_LE(std::abs(chi2 - (cells - 1)) / std::sqrt(2.0 * (cells - 1)), kZ) << "cut " << cut;
    }
  }
}

TEST(Random, TruncatedInvertsTheDistributionFunction) {
  for (const double cut : {0.01, 1.0, 2.0, 3.0, 5.0, 20.0}) {
    const kernels::RandomLaw law = kernels::make_law(Distribution::truncated(1, cut));
    double worst = 0;
    for (const std::uint32_t word : words()) {
      const double x = static_cast<std::int32_t>(word | 1) * 0x1p-31;
      const float z = kernels::reference::truncated(word, law.inner, law.outer);
      const double size = std::abs(static_cast<double>(z));
      const double inside = std::abs(x) * law.inner;  // P(|Z| < |z|), wanted
      const double outside = law.outer + law.inner * (1 - std::abs(x));
      const double excess = inside < 0.5 ? std::erf(size / std::numbers::sqrt2) - inside : outside - std::erfc(size / std::numbers::sqrt2);
      const double slope = std::sqrt(2 / std::numbers::pi) * std::exp(-size * size / 2);
      ASSERT_EQ(z > 0, x > 0);
      worst = std::max(worst, in_ulp(static_cast<float>(size), size - excess / slope));
    }
    EXPECT_LE(worst, 4.2) << "cut " << cut;
  }
}

// Even moments of a normal within +-cut, by Simpson's rule.
double truncated_moment(double cut, int order) {
  constexpr int steps = 2000;
  double sum[2] = {};
  for (int i = 0; i <= steps; ++i) {
    const double x = cut * i / steps;
    const double weight = (i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2) * std::exp(-x * x / 2);
    sum[0] += weight;
    sum[1] += weight * std::pow(x, order);
  }
  return sum[1] / sum[0];
}

TEST(Random, TruncatedStaysInsideAndHasItsMoments) {
  constexpr std::size_t n = 1 << 20;
  for (const double cut : {0.125, 1.0, 2.0, 3.0, 6.0}) {
    const Distribution law = Distribution::truncated(1, cut);
    const std::vector<float> x = draw(law, make_stream(9, fmt::format("cut {}", cut)), 0, n);
    const auto [low, high] = std::ranges::minmax(x);
    EXPECT_GT(low, -cut);
    EXPECT_LT(high, cut);
    const double m2 = truncated_moment(cut, 2);
    const double m4 = truncated_moment(cut, 4);
    const double m8 = truncated_moment(cut, 8);
    EXPECT_NEAR(law.std(), std::sqrt(m2), 1e-9);
    EXPECT_LE(std::abs(mean_of(x, [](double v) { return v; })) / std::sqrt(m2 / n), kZ) << cut;
    const double got2 = mean_of(x, [](double v) { return v * v; });
    const double got4 = mean_of(x, [](double v) { return v * v * v * v; });
    EXPECT_LE(std::abs(got2 - law.second_moment()) / std::sqrt((m4 - m2 * m2) / n), kZ) << cut;
    EXPECT_LE(std::abs(got4 - m4) / std::sqrt((m8 - m4 * m4) / n), kZ) << cut;
  }
}

TEST(Random, BoundsHoldAfterRounding) {
  const Stream stream = make_stream(3, "bounds");
  for (const double mean : {0.0, 0.1, -1.0, 1000.0}) {
    for (const double reach : {1e-6, 0.1, 1.0 / 3, 7.0}) {
      for (const double v : draw(Distribution::uniform(reach, mean), stream, 0, 20'000)) {
        ASSERT_TRUE(v >= mean - reach && v <= mean + reach) << mean << " +- " << reach << ": " << v;
      }
      for (const double v : draw(Distribution::truncated(reach, 0.7, mean), stream, 0, 20'000)) {
        if (mean == 1000 && reach < 1e-3) continue;  // no float but the mean is near enough
        ASSERT_TRUE(v > mean - 0.7 * reach && v < mean + 0.7 * reach) << mean << " +- 0.7 * " << reach << ": " << v;
      }
    }
  }
  const kernels::RandomLaw law = kernels::make_law(Distribution::truncated(1, 2));
  for (const std::uint32_t w : {0x80000000U, 0x80000001U, 0x7FFFFFFFU, 0x7FFFFFFEU}) {
    EXPECT_NEAR(std::abs(kernels::reference::truncated(w, law.inner, law.outer)), 2, 1e-6);
    EXPECT_LE(std::abs(kernels::reference::uniform(w)), 1);
  }
  EXPECT_LT(law.high, 2);
  EXPECT_GT(law.low, -2);
}

TEST(Random, NothingToChooseIsAConstant) {
  const Stream stream = make_stream(3, "constant");
  for (const Distribution& law :
       {Distribution::constant(0.1), Distribution::normal(0, 0.1), Distribution::uniform(0, 0.1), Distribution::truncated(0, 2, 0.1)}) {
    for (const float v : draw(law, stream, 3, 100)) ASSERT_EQ(v, 0.1F);
  }
}

double correlation_z(std::span<const float> a, std::span<const float> b, bool squares) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i];
    const double y = b[i];
    sum += squares ? (x * x - 1) * (y * y - 1) / 2 : x * y;
  }
  return sum / std::sqrt(static_cast<double>(a.size()));
}

TEST(Random, StreamsAndNeighboursAreIndependent) {
  constexpr std::size_t n = 1 << 17;
  std::vector<std::vector<float>> drawn;
  for (const std::uint64_t seed : {0ULL, 1ULL, 1ULL << 32}) {
    for (const char* name : {"", "a", "b", "h.0.w", "h.1.w"}) {
      drawn.push_back(draw(Distribution::normal(1), make_stream(seed, name), 0, n));
    }
  }
  for (const bool squares : {false, true}) {
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) EXPECT_LE(std::abs(correlation_z(drawn[i], drawn[j], squares)), kZ);
      for (const std::size_t lag : {1, 2, 8, 15, 16, 17, 32, 128, 768}) {
        const std::span<const float> x = drawn[i];
        EXPECT_LE(std::abs(correlation_z(x.first(n - lag), x.subspan(lag), squares)), kZ) << "lag " << lag;
      }
    }
  }
}

TEST(Random, NamesThatLookAlikeGetOtherStreams) {
  const std::string zero(1, '\0');
  std::vector<Stream> streams;
  for (const std::string& name : {std::string(), zero, zero + zero, std::string("a"), "a" + zero, std::string("b"), std::string("12345678"),
                                  std::string("123456789"), std::string("87654321")}) {
    for (const std::uint64_t seed : {0ULL, 1ULL, 8ULL, 1ULL << 63}) streams.push_back(make_stream(seed, name));
  }
  for (std::size_t i = 0; i < streams.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(streams[i].key, streams[j].key);
      EXPECT_NE(streams[i].high, streams[j].high);
    }
  }
}

TEST(Distribution, KnowsItsStandardDeviation) {
  EXPECT_EQ(Distribution::constant(3).std(), 0);
  EXPECT_EQ(Distribution::constant(3).second_moment(), 9);
  EXPECT_EQ(Distribution::normal(0.02).std(), 0.02);
  EXPECT_NEAR(Distribution::uniform(3, 1).second_moment(), 4, 1e-15);
  EXPECT_NEAR(Distribution::truncated(1, 2).std(), 0.87962566103423978, 1e-15);  // 1 / 1.136847..., of JAX and timm
  EXPECT_NEAR(Distribution::truncated(1, 3).std(), 0.98657839255810864, 1e-14);
  EXPECT_NEAR(Distribution::truncated(1, 1e-6).std() / (1e-6 / std::numbers::sqrt3), 1, 1e-12);
  const auto jump = Distribution::truncated(1, std::nextafter(3, 4)).std() - Distribution::truncated(1, 3).std();
  EXPECT_NEAR(jump, 0, 1e-14);  // the two formulas meet
  EXPECT_EQ(Distribution::truncated(2, 50).std(), 2);
}

}  // namespace
}  // namespace stepzero
