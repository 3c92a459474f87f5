#include "stepzero/core/streaming_moments.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"

namespace stepzero {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity();

// Digits that agree with the certified value.
double digits(long double value, long double certified) {
  return static_cast<double>(-std::log10(std::abs(value - certified) / std::abs(certified)));
}

struct Exact {
  long double mean = 0, m2 = 0;
};

template <class S>
Exact two_pass(const std::vector<S>& x) {
  const long double n = static_cast<long double>(x.size());
  Exact out;
  for (const S v : x) out.mean += static_cast<long double>(v);
  out.mean /= n;
  for (const S v : x) {
    const long double d = static_cast<long double>(v) - out.mean;
    out.m2 += d * d;
  }
  return out;
}

template <class S>
Moments of(const std::vector<S>& x, Index rows = 1) {
  return moments<S>({x.data(), rows, static_cast<Index>(x.size()) / rows});
}

// NIST StRD: value, then low and high in turns.
std::vector<double> alternating(double first, double low, double high) {
  std::vector<double> x = {first};
  for (int i = 0; i < 500; ++i) x.insert(x.end(), {low, high});
  return x;
}

TEST(Moments, NistUnivariate) {
  struct Set {
    const char* name;
    std::vector<double> x;
    long double mean, deviation;
  };
  const std::vector<Set> sets = {
      {"NumAcc1", {10000001, 10000003, 10000002}, 10000002, 1},
      {"NumAcc2", alternating(1.2, 1.1, 1.3), 1.2L, 0.1L},
      {"NumAcc3", alternating(1000000.2, 1000000.1, 1000000.3), 1000000.2L, 0.1L},
      {"NumAcc4", alternating(10000000.2, 10000000.1, 10000000.3), 10000000.2L, 0.1L},
  };
  for (const Set& set : sets) {
    const Index n = static_cast<Index>(set.x.size());
    const Exact exact = two_pass(set.x);
    const long double size = static_cast<long double>(n - 1);
    // What the double inputs allow, and a double can hold.
    const double holds = -std::log10(std::numeric_limits<double>::epsilon() / 2);
    const double mean_limit = std::min(holds, digits(exact.mean, set.mean));
    const double deviation_limit = std::min(holds, digits(std::sqrt(exact.m2 / size), set.deviation));
    for (const Index rows : {Index{1}, n}) {  // in one run, and by n - 1 merges
      const Moments got = of(set.x, rows);
      EXPECT_GE(digits(got.mean, set.mean), mean_limit - 0.5) << set.name << " rows " << rows;
      EXPECT_GE(digits(std::sqrt(got.m2 / static_cast<double>(n - 1)), set.deviation), deviation_limit - 0.5)
          << set.name << " rows " << rows;
    }
  }
}

template <class S>
std::vector<S> normals(std::size_t n, double mean, double deviation) {
  std::mt19937 rng(static_cast<unsigned>(n));
  std::normal_distribution<double> normal(mean, deviation);
  std::vector<S> x(n);
  for (S& v : x) v = static_cast<S>(normal(rng));
  return x;
}

TEST(Moments, AgreesWithLongDouble) {
  for (const std::size_t n : {1, 2, 3, 15, 16, 17, 31, 257, 4095, 4096, 4097, 8191, 65537}) {
    for (const double mean : {0.0, 1.0, 100.0, -1e6}) {
      const std::vector<double> x = normals<double>(n, mean, 1);
      const Exact exact = two_pass(x);
      const Moments got = of(x);
      EXPECT_EQ(got.count, n);
      EXPECT_NEAR(got.mean, static_cast<double>(exact.mean), 1e-14 * (1 + std::abs(mean))) << n;
      // Beyond the rounding of the sums: the mean is a double, and its error enters squared.
      EXPECT_NEAR(got.m2, static_cast<double>(exact.m2), 1e-12 * static_cast<double>(exact.m2)) << n << " " << mean;
      EXPECT_EQ(got.min, *std::min_element(x.begin(), x.end()));
      EXPECT_EQ(got.max, *std::max_element(x.begin(), x.end()));
    }
  }
}

TEST(Moments, DerivedQuantities) {
  const Moments got = of<float>({1, 2, 3, 4});
  EXPECT_DOUBLE_EQ(got.mean, 2.5);
  EXPECT_DOUBLE_EQ(got.variance(), 1.25);
  EXPECT_DOUBLE_EQ(got.std(), std::sqrt(1.25));
  EXPECT_DOUBLE_EQ(got.second_moment(), 7.5);
  EXPECT_DOUBLE_EQ(got.sum_squares(), 30);
}

TEST(Moments, ConstantHasNoVariance) {
  const Moments got = of(std::vector<float>(10007, 0.1f), 1);
  EXPECT_EQ(got.m2, 0);
  EXPECT_EQ(got.mean, static_cast<double>(0.1f));
}

TEST(Moments, NothingToAverage) {
  const Moments none = moments<float>({nullptr, 0, 5});
  EXPECT_EQ(none.count, 0u);
  EXPECT_TRUE(std::isnan(none.variance()));
  EXPECT_EQ(none.min, inf);
  EXPECT_EQ(none.max, -inf);
  const Moments lost = of<float>({NAN, INFINITY, -INFINITY});
  EXPECT_EQ(lost.count, 0u);
  EXPECT_EQ(lost.nans, 1u);
  EXPECT_EQ(lost.infs, 2u);
  EXPECT_EQ(lost.mean, 0);
}

TEST(Moments, NonFiniteAreCountedNotSummed) {
  std::vector<float> x = normals<float>(9001, 3, 1);
  for (const std::size_t i : {0, 17, 4095}) x[i] = 0;
  x[5] = -0.0f;
  std::vector<float> kept = x;
  x.insert(x.begin(), NAN);
  x.insert(x.begin() + 100, INFINITY);
  x.insert(x.begin() + 5000, -INFINITY);
  x.push_back(NAN);
  const Moments got = of(x);
  const Exact exact = two_pass(kept);
  EXPECT_EQ(got.count, kept.size());
  EXPECT_EQ(got.nans, 2u);
  EXPECT_EQ(got.infs, 2u);
  EXPECT_EQ(got.zeros, 4u);
  EXPECT_NEAR(got.mean, static_cast<double>(exact.mean), 1e-13);
  EXPECT_NEAR(got.m2, static_cast<double>(exact.m2), 1e-12 * static_cast<double>(exact.m2));
}

TEST(Moments, HugeAndTiny) {
  for (const float scale : {1e30f, 1e-30f, 3e38f, 1e-44f}) {
    std::vector<float> x;
    for (int i = 0; i < 1000; ++i) x.push_back(scale * (i % 3 == 0 ? -1.0f : 0.5f));
    const Exact exact = two_pass(x);
    const Moments got = of(x);
    EXPECT_NEAR(got.m2 / static_cast<double>(exact.m2), 1, 1e-13) << scale;
    EXPECT_NEAR(got.mean / static_cast<double>(scale), static_cast<double>(exact.mean) / static_cast<double>(scale), 1e-14);
  }
  const Moments large = of<double>({1e200, 3e200, -1e200});
  EXPECT_DOUBLE_EQ(large.mean, 1e200);
  EXPECT_EQ(large.m2, inf);
  const Moments end = of<double>({1.7e308, 1.5e308, 1.6e308});
  EXPECT_NEAR(end.mean / 1.6e308, 1, 1e-15);
  EXPECT_EQ(end.m2, inf);
}

TEST(Moments, TreeIsBalanced) {
  const std::vector<double> x = {0.1, 7.3, -1e3, 1.7, 3e-3, 11.1, 0.9};
  std::vector<Moments> leaf;
  for (const double v : x) leaf.push_back(of<double>({v}));
  const auto join = [](Moments a, const Moments& b) {
    a.merge(b);
    return a;
  };
  const Moments by_hand = join(join(join(leaf[0], leaf[1]), join(leaf[2], leaf[3])), join(join(leaf[4], leaf[5]), leaf[6]));
  EXPECT_EQ(merge_tree(leaf), by_hand);
  Moments in_line = leaf[0];
  for (std::size_t i = 1; i < leaf.size(); ++i) in_line.merge(leaf[i]);
  EXPECT_NE(merge_tree(leaf), in_line) << "this sample cannot tell a tree from a line";
}

TEST(Moments, SameBitsForAnyThreadsAndStride) {
  const Index rows = 97, cols = 5003, stride = 5011;
  const std::vector<float> x = normals<float>(static_cast<std::size_t>(rows * stride), 0.5, 2);
  std::vector<float> packed;
  for (Index r = 0; r < rows; ++r) packed.insert(packed.end(), x.begin() + r * stride, x.begin() + r * stride + cols);
  const int before = threads();
  set_threads(1);
  const Moments one = of(packed, rows);
  for (const int n : {1, 2, 3}) {
    set_threads(n);
    EXPECT_EQ(moments<float>({x.data(), rows, cols, stride}), one) << n;
  }
  set_threads(before);
}

}  // namespace
}  // namespace stepzero
