#include "stepzero/kernels/statistics.hpp"

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/statistics_kernels.hpp"

namespace stepzero {
namespace {

struct Shape {
  Index sequences, length, cols, gap;  // gap: columns of the stride that are not part of the view
};

// One signal with a direction in common, so that cosines are not all noise.
std::vector<float> signal(const Shape& s, float mean, float deviation, float common) {
  std::mt19937 rng(static_cast<unsigned>(s.length * 1000 + s.cols));
  std::normal_distribution<float> normal;
  std::vector<float> direction(static_cast<std::size_t>(s.cols + s.gap));
  for (float& v : direction) v = normal(rng);
  std::vector<float> x;
  for (Index r = 0; r < s.sequences * s.length; ++r) {
    for (const float d : direction) x.push_back(mean + deviation * (normal(rng) + common * d));
  }
  return x;
}

View<const float> view(const std::vector<float>& x, const Shape& s) { return {x.data(), s.sequences * s.length, s.cols, s.cols + s.gap}; }

// All pairs, in double.
double naive_cosine(View<const float> x, Index sequences, Index length) {
  const auto dot = [&](Index a, Index b) {
    double sum = 0;
    for (Index c = 0; c < x.cols; ++c) sum += static_cast<double>(x(a, c)) * static_cast<double>(x(b, c));
    return sum;
  };
  double sum = 0;
  for (Index s = 0; s < sequences; ++s) {
    for (Index a = 0; a < length; ++a) {
      for (Index b = 0; b < a; ++b) {
        const Index i = s * length + a;
        const Index j = s * length + b;
        const double norms = std::sqrt(dot(i, i)) * std::sqrt(dot(j, j));
        if (norms > 0) sum += 2 * dot(i, j) / norms;
      }
    }
  }
  return sum / static_cast<double>(sequences * length * (length - 1));
}

// As promised in the header.
void expect_cosine(double got, View<const float> x, Index sequences, Index length, const std::string& what) {
  const double exact = naive_cosine(x, sequences, length);
  const double bound = 4e-7 * (std::abs(exact) + 1 / static_cast<double>(length));
  EXPECT_TRUE(std::abs(got - exact) <= bound) << what << ": cosine " << got << ", naive " << exact;
}

void expect_moments(const Moments& got, View<const float> x, const std::string& what) {
  long double sum = 0, m2 = 0;
  const long double n = static_cast<long double>(x.size());
  for (Index r = 0; r < x.rows; ++r) {
    for (Index c = 0; c < x.cols; ++c) sum += static_cast<long double>(x(r, c));
  }
  for (Index r = 0; r < x.rows; ++r) {
    for (Index c = 0; c < x.cols; ++c) {
      const long double d = static_cast<long double>(x(r, c)) - sum / n;
      m2 += d * d;
    }
  }
  const double squares = static_cast<double>(m2 + sum * sum / n);
  EXPECT_EQ(got.count, static_cast<std::uint64_t>(x.size())) << what;
  EXPECT_TRUE(std::abs(got.m2 - static_cast<double>(m2)) <= 1e-11 * static_cast<double>(m2)) << what << ": m2 " << got.m2;
  EXPECT_TRUE(std::abs(got.mean - static_cast<double>(sum / n)) <= 1e-13 * std::sqrt(squares / static_cast<double>(n)))
      << what << ": mean " << got.mean;
  EXPECT_NEAR(sum_squares(x) / squares, 1, 1e-13) << what;
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

const std::vector<Shape> shapes = {{1, 1, 1, 0},   {1, 2, 1, 0},   {1, 3, 17, 5},   {2, 5, 16, 0},   {1, 33, 31, 1}, {1, 67, 97, 0},
                                   {70, 2, 48, 0}, {5, 40, 64, 3}, {3, 65, 257, 7}, {1, 257, 19, 0}, {1, 3, 9001, 0}};

std::string name(const Shape& s) { return std::to_string(s.sequences) + "x" + std::to_string(s.length) + "x" + std::to_string(s.cols); }

TEST(Statistics, AgreesWithNaiveDouble) {
  for (const Shape& s : shapes) {
    for (const float common : {0.0f, 3.0f}) {
      const std::vector<float> x = signal(s, 0.1f, 1, common);
      const SignalStats got = signal_stats(view(x, s), s.sequences, s.length);
      if (s.length * s.cols > 1) expect_moments(got.moments, view(x, s), name(s));
      EXPECT_EQ(std::isnan(got.token_cosine), s.length == 1) << name(s);
      if (s.length > 1) expect_cosine(got.token_cosine, view(x, s), s.sequences, s.length, name(s));
    }
  }
}

// Runs f once for every SIMD level of this machine.
template <class F>
void on_every_level(F&& f) {
  hwy::SetSupportedTargetsForTest(0);
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    f(std::string(hwy::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

// Magnitudes spread over 2^40 make every sum round, so that another order shows; among equals a fused product shows.
TEST(Statistics, KernelsHaveTheBitsOfTheirReference) {
  std::mt19937 rng(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> x(4 * 4096);
  for (float& v : x) v = std::ldexp(uniform(rng), static_cast<int>(20 * uniform(rng)));
  std::vector<float> equals(4096);
  for (float& v : equals) v = uniform(rng);
  std::vector<Index> sizes = {255, 771, 4095, 4096};
  for (Index n = 1; n < 70; ++n) sizes.push_back(n);
  const StatisticsKernels<float> plain = plain_kernels<float>();
  const float* rows[group_rows] = {x.data(), x.data() + 4096, x.data() + 8192, x.data() + 12288};
  const float scales[group_rows] = {0.1f, 3.3f, 0, 0.7f};
  on_every_level([&](const std::string& level) {
    const StatisticsKernels<float> best = best_kernels<float>();
    for (const Index n : sizes) {
      const RunSums a = best.run.sums(x.data() + 1, std::min<Index>(n, 4095));
      const RunSums b = plain.run.sums(x.data() + 1, std::min<Index>(n, 4095));
      EXPECT_TRUE(same_bits(a.sum, b.sum) && same_bits(a.squares, b.squares)) << level << " " << n;
      EXPECT_TRUE(a.min == b.min && a.max == b.max && a.zeros == b.zeros) << level << " " << n;
      const CentredSums c = best.run.centred(equals.data(), n, 0.123456789);
      const CentredSums d = plain.run.centred(equals.data(), n, 0.123456789);
      EXPECT_TRUE(same_bits(c.sum, d.sum) && same_bits(c.squares, d.squares)) << level << " " << n;
      EXPECT_TRUE(same_bits(best.squares(x.data(), n), plain.squares(x.data(), n))) << level << " " << n;
      std::vector<double> e(static_cast<std::size_t>(n), 0.3), f(static_cast<std::size_t>(n), 0.3);
      best.add_units(e.data(), rows, scales, n);
      plain.add_units(f.data(), rows, scales, n);
      EXPECT_EQ(e, f) << level << " " << n;
    }
  });
}

TEST(Statistics, SameBitsOnEverySimdLevelAndThreadCount) {
  const int before = threads();
  for (const Shape& s : shapes) {
    // A mean far above the deviation sends half of the cases through the second reading.
    for (const float mean : {0.1f, 1000.0f}) {
      std::vector<float> x = signal(s, mean, 1, 0.5f);
      for (std::size_t i = 0; i < x.size() && mean < 1; i += 11) x[i] = 0;
      set_threads(1);
      const SignalStats plain = signal_stats_reference(view(x, s), s.sequences, s.length);
      const double squares = sum_squares_reference(view(x, s));
      on_every_level([&](const std::string& level) {
        for (const int n : {1, 2, 3}) {
          set_threads(n);
          const SignalStats got = signal_stats(view(x, s), s.sequences, s.length);
          const std::string what = name(s) + " " + level + " threads " + std::to_string(n);
          EXPECT_EQ(got.moments, plain.moments) << what;
          EXPECT_TRUE(same_bits(got.token_cosine, plain.token_cosine) || s.length == 1) << what;
          EXPECT_TRUE(same_bits(sum_squares(view(x, s)), squares)) << what;
        }
      });
    }
  }
  set_threads(before);
}

TEST(Statistics, PiecesHaveTheBitsOfTheWhole) {
  struct Cut {
    Shape s;
    std::vector<Index> rows;
  };
  const std::vector<Cut> cuts = {{{1, 67, 97, 0}, {8, 16, 43}},        {{1, 67, 97, 0}, {64, 3}},
                                 {{5, 40, 64, 3}, {80, 80, 40}},       {{5, 40, 64, 3}, {40, 24, 16, 8, 32, 80}},
                                 {{70, 2, 48, 0}, {2, 136, 2}},        {{70, 40, 9, 0}, {80, 24, 16, 2680}},
                                 {{1, 4500, 17, 0}, {512, 512, 3476}}, {{80, 1, 48, 1}, {33, 40, 7}}};
  for (const auto& [s, rows] : cuts) {
    std::vector<float> x = signal(s, 0.1f, 1, 1);
    for (const float broken : {0.0f, std::numeric_limits<float>::infinity()}) {
      x[x.size() / 2] += broken;
      const View<const float> all = view(x, s);
      const SignalStats whole = signal_stats(all, s.sequences, s.length);
      SignalScan<float> scan(s.sequences, s.length, s.cols);
      Index first = 0;
      for (const Index n : rows) {
        EXPECT_FALSE(scan.complete()) << name(s);
        scan.add(all.slice(first, n));
        first += n;
      }
      ASSERT_TRUE(scan.complete()) << name(s);
      EXPECT_EQ(scan.finish().moments, whole.moments) << name(s);
      EXPECT_TRUE(same_bits(scan.finish().token_cosine, whole.token_cosine)) << name(s);
    }
  }
}

TEST(Statistics, NegativeZeroIsZero) {
  for (const std::size_t n : {1, 16, 33}) {
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<float> x(n, -0.0f);
      x[i] = 0;
      const Moments got = signal_stats<float>({x.data(), 1, static_cast<Index>(n)}, 1, 1).moments;
      EXPECT_FALSE(std::signbit(got.min) || std::signbit(got.max)) << n << " " << i;
      EXPECT_EQ(got.zeros, n);
    }
  }
}

TEST(Statistics, OneSequenceHasTheBitsOfMoments) {
  for (const Shape& s : shapes) {
    if (s.sequences != 1) continue;
    const std::vector<float> x = signal(s, 0.1f, 1, 0);
    EXPECT_EQ(signal_stats(view(x, s), 1, s.length).moments, moments(view(x, s))) << name(s);
    EXPECT_EQ(signal_stats(view(x, s), s.length, 1).moments, moments(view(x, s))) << name(s);
  }
}

TEST(Statistics, MeanFarAboveDeviation) {
  for (const float mean : {10.0f, 1e3f, -1e6f}) {
    const Shape s{1, 37, 771, 0};
    const std::vector<float> x = signal(s, mean, 1, 0);
    expect_moments(signal_stats(view(x, s), 1, s.length).moments, view(x, s), std::to_string(mean));
  }
}

TEST(Statistics, KnownCosines) {
  const Shape s{2, 9, 50, 0};
  std::vector<float> x = signal(s, 0, 1, 0);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i % 50] * static_cast<float>(i / 50 + 1);
  EXPECT_NEAR(signal_stats(view(x, s), 2, 9).token_cosine, 1, 1e-7);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = i / 50 % 2 == 0 ? x[i] : -x[i];
  // Nine rows a sequence, signs in turns: (1 - 9) / (9 * 8).
  EXPECT_NEAR(signal_stats(view(x, s), 2, 9).token_cosine, -1.0 / 9, 1e-7);
}

TEST(Statistics, ZeroRowsHaveCosineZero) {
  const Shape s{2, 41, 33, 2};
  std::vector<float> x = signal(s, 0, 1, 2);
  for (const Index r : {0, 7, 40, 41, 60}) std::fill_n(x.begin() + r * 35, 33, 0.0f);
  const SignalStats got = signal_stats(view(x, s), 2, 41);
  expect_cosine(got.token_cosine, view(x, s), 2, 41, "zero rows");
  EXPECT_EQ(got.moments.zeros, 5u * 33);
  std::fill(x.begin(), x.end(), 0.0f);
  EXPECT_EQ(signal_stats(view(x, s), 2, 41).token_cosine, 0);
}

TEST(Statistics, HugeAndTiny) {
  for (const float scale : {1e30f, 1e37f, 1e-30f, 1e-40f}) {
    const Shape s{1, 23, 129, 0};
    std::vector<float> x = signal(s, 0, 1, 1);
    for (float& v : x) v *= scale;
    for (std::size_t i = 0; i < 129; ++i) x[i] /= scale;  // and one ordinary row among them
    const SignalStats got = signal_stats(view(x, s), 1, 23);
    expect_moments(got.moments, view(x, s), std::to_string(scale));
    expect_cosine(got.token_cosine, view(x, s), 1, 23, std::to_string(scale));
  }
}

TEST(Statistics, NonFiniteAreCountedAndLeaveNoCosine) {
  const Shape s{1, 40, 5003, 0};
  std::vector<float> x = signal(s, 1, 1, 0);
  const double clean = signal_stats(view(x, s), 1, 40).moments.mean;
  x[3] = NAN;
  x[100000] = INFINITY;
  x[150000] = -INFINITY;
  const SignalStats got = signal_stats(view(x, s), 1, 40);
  EXPECT_EQ(got.moments.nans, 1u);
  EXPECT_EQ(got.moments.infs, 2u);
  EXPECT_EQ(got.moments.count, x.size() - 3);
  EXPECT_NEAR(got.moments.mean, clean, 1e-4);
  EXPECT_TRUE(std::isfinite(got.moments.m2) && std::isfinite(got.moments.max));
  EXPECT_TRUE(std::isnan(got.token_cosine));
  EXPECT_TRUE(std::isnan(sum_squares(view(x, s))));
  x[3] = 0;
  EXPECT_EQ(sum_squares(view(x, s)), INFINITY);
}

TEST(Statistics, DoubleAndFloatTellTheSame) {
  const Shape s{3, 65, 257, 0};
  const std::vector<float> x = signal(s, 0.1f, 1, 1);
  const std::vector<double> wide(x.begin(), x.end());
  const View<const double> y{wide.data(), 195, 257};
  const SignalStats a = signal_stats(view(x, s), 3, 65);
  const SignalStats b = signal_stats(y, 3, 65);
  EXPECT_EQ(a.moments, b.moments);  // the squares of floats are exact in double
  EXPECT_NEAR(a.token_cosine, b.token_cosine, 1e-7);
  EXPECT_NEAR(b.token_cosine, naive_cosine(view(x, s), 3, 65), 1e-14);
  EXPECT_TRUE(same_bits(sum_squares(view(x, s)), sum_squares(y)));
}

TEST(Statistics, Empty) {
  EXPECT_EQ(signal_stats<float>({nullptr, 0, 7}, 0, 5).moments.count, 0u);
  EXPECT_EQ(sum_squares<float>({nullptr, 0, 7}), 0);
}

}  // namespace
}  // namespace stepzero
