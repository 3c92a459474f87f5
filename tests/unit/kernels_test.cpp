// The float kernels against the double templates they stand beside, in ulps, on every SIMD level of this machine.
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/product/packed_product.hpp"
#include "stepzero/kernels/product/tile_product.hpp"
#include "stepzero/kernels/rows.hpp"
#include "stepzero/kernels/vector_math.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {
namespace {

constexpr double eps = FLT_EPSILON;
constexpr std::array<Index, 17> sizes = {1, 2, 3, 5, 7, 13, 15, 16, 17, 31, 33, 64, 67, 127, 257, 1000, 3072};
constexpr float guard = 12345.0F;  // stands behind every output: a kernel that writes too far is seen

std::size_t z(Index i) { return static_cast<std::size_t>(i); }

// Runs body once for each SIMD level that was compiled and that this machine has.
void for_each_target(const std::function<void(const std::string&)>& body) {
  hwy::SetSupportedTargetsForTest(0);
  const auto targets = hwy::SupportedAndGeneratedTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::int64_t target : targets) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    body(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

// [-12, 12] in steps that are not powers of two, both sides of every branch point, large, tiny, denormal, zero.
std::vector<float> grid() {
  std::vector<float> x;
  for (int i = -18000; i <= 18000; ++i) x.push_back(static_cast<float>(i / 1500.0));
  for (const float edge : {0.55F, 1.0F, 1.41421356F, 5.79827561F, 0.0F, 87.5F, 88.0F, 89.0F, 104.0F, 44.0F, 52.0F}) {
    for (const float sign : {1.0F, -1.0F}) {
      float low = edge, high = edge;
      for (int k = 0; k < 20; ++k) {
        x.push_back(sign * low);
        x.push_back(sign * high);
        low = std::nextafter(low, -1e9F);
        high = std::nextafter(high, 1e9F);
      }
    }
  }
  for (const float size : {50.0F, 1e4F, 1e-20F, 1e-40F, FLT_TRUE_MIN, FLT_MIN, 1e-5F, 1e-3F, 20.0F, 30.0F, 70.0F, 80.0F, 90.0F, 1e3F}) {
    x.push_back(size);
    x.push_back(-size);
  }
  x.push_back(-0.0F);
  return x;
}

struct Worst {
  double ulps = 0;
  double x = 0, got = 0, want = 0;

  void see(double at, double measured, double exact, double scale) {
    const double error = std::abs(measured - exact) / (eps * scale);
    if (error <= ulps) return;  // a NaN goes on, and stays
    if (std::isnan(ulps)) return;
    *this = {error, at, measured, exact};
  }
};

std::string row(const std::string& what, const std::string& target, const Worst& w, double bound) {
  return fmt::format(
      "{:<24} {:<8} worst {:8.3f} eps (bound {})  x {:+.9e}  float {:+.9e}  double {:+.9e}\n"
      "run again: stepzero_tests --gtest_filter='Kernels.*'",
      what, target, w.ulps, bound, w.x, w.got, w.want);
}

// The natural scale of an error in f(x): the value where the float formula rounds nothing before its exponential
// (sigmoid, tanh, silu), else also what one rounding of x does to it, |x f'(x)|. Below FLT_MIN floats lose digits, hence
// the floor. Two places are excused:
// * sigmoids stop at exp(88), so far below zero they end at 6e-39 instead of falling further; nothing in float sees it.
// * gelu's normal tail is a fit whose relative accuracy fades below z = -3. 1 + erf(z) cancels to rounding there in the
//   plain float formula (which is what PyTorch computes), so below x = -4 the scale is |x|, and for the slope 1;
//   for laplace, which is the tail itself, it is 1 below z = -4. Its shift x - mu rounds like mu near x = 0.
template <class Phi>
constexpr bool is_gelu = std::is_same_v<Phi, GeluErf> || std::is_same_v<Phi, Gelu10>;
template <class Phi>
double value_scale(double x, double f, double slope) {
  if (is_gelu<Phi> && x < -4) return std::abs(x);
  if (std::is_same_v<Phi, Laplace> && x < Laplace::mu - 4 * Laplace::sigma) return 1;
  const bool plain = std::is_same_v<Phi, Sigmoid> || std::is_same_v<Phi, Tanh> || std::is_same_v<Phi, Silu>;
  const double tail = x < -10 ? 1e-30 * std::abs(x) : 0;
  const double size = std::abs(x) + (std::is_same_v<Phi, Laplace> ? Laplace::mu : 0);
  return std::max({std::abs(f) + (plain ? 0 : size * std::abs(slope)), static_cast<double>(FLT_MIN), tail});
}

// The same for f', with f'' from dual numbers; where those overflow (|x| beyond 700) f'' is 0 for all of these.
template <class Phi>
double slope_scale(double x, double slope) {
  if (is_gelu<Phi> && x < -4) return 1;
  const double curvature = Phi::slope(Dual(x, 1)).slope;
  const double moved = std::isfinite(curvature) ? std::abs(x * curvature) : 0;
  const double tail = std::abs(x) > 10 ? 1e-30 * std::pow(x, 4) : 0;
  return std::max({std::abs(slope) + moved, static_cast<double>(FLT_MIN), tail});
}

template <class Phi>
struct Bound;  // in eps: value, slope; beside them the worst that was found on the grid, over all SIMD levels
#define STEPZERO_BOUND(Phi, v, s)                 \
  template <>                                     \
  struct Bound<Phi> {                             \
    static constexpr double value = v, slope = s; \
  };
STEPZERO_BOUND(Identity, 0, 0)
STEPZERO_BOUND(Relu, 0, 0)
STEPZERO_BOUND(ReluSquared, 0.51, 0.51)  // 0.38, 0.44
STEPZERO_BOUND(Relu6, 0, 0)
STEPZERO_BOUND(LeakyRelu, 0.51, 0.51)  // 0.38, 0.50
STEPZERO_BOUND(Sigmoid, 1.5, 2.5)      // 0.96, 1.66
STEPZERO_BOUND(Tanh, 2, 2.5)           // 1.24, 1.68
STEPZERO_BOUND(Silu, 2, 3.5)           // 1.28, 2.22
STEPZERO_BOUND(QuickGelu, 2.5, 3.5)    // 1.45, 2.21
STEPZERO_BOUND(GeluErf, 4, 6.5)        // 2.70, 4.60
STEPZERO_BOUND(GeluTanh, 3.5, 5.5)     // 2.29, 3.94
STEPZERO_BOUND(Gelu10, 4, 6.5)         // 2.69, 4.60
STEPZERO_BOUND(Mish, 2, 4.5)           // 1.41, 3.00
STEPZERO_BOUND(Laplace, 3.5, 8)        // 2.15, 5.55
#undef STEPZERO_BOUND

template <class Phi>
Worst worst_value(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  apply_row<Phi>(x.data(), y.data(), static_cast<Index>(x.size()));
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]);
    const double f = Phi::value(at);
    worst.see(at, static_cast<double>(y[i]), f, value_scale<Phi>(at, f, Phi::slope(at)));
  }
  return worst;
}

template <class Phi>
Worst worst_slope(const std::vector<float>& x) {
  std::vector<float> dy(x.size()), dx(x.size(), std::nanf(""));
  for (std::size_t i = 0; i < x.size(); ++i) dy[i] = (i % 2 == 0 ? 1.0F : -1.0F) * (1.0F + static_cast<float>(i % 7) / 8);
  apply_slope_row<Phi>(x.data(), dy.data(), dx.data(), static_cast<Index>(x.size()), false);
  Worst worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double at = static_cast<double>(x[i]), d = static_cast<double>(dy[i]);
    const double s = Phi::slope(at);
    worst.see(at, static_cast<double>(dx[i]), s * d, slope_scale<Phi>(at, s) * std::abs(d));
  }
  return worst;
}

template <class... Phi, class F>
void for_each_phi(const F& f, std::tuple<Phi...>*) {
  (f.template operator()<Phi>(), ...);
}
template <class F>
void for_each_phi(const F& f) {
  for_each_phi(f, static_cast<PhiList<std::tuple>*>(nullptr));
}

TEST(Kernels, PhisAgreeWithDouble) {
  const auto x = grid();
  for_each_target([&](const std::string& target) {
    for_each_phi([&]<class Phi>() {
      const Worst value = worst_value<Phi>(x);
      const Worst slope = worst_slope<Phi>(x);
      if (std::getenv("STEPZERO_SHOW_WORST") != nullptr) {
        fmt::print("{}\n{}\n", row(Phi::name, target, value, 0), row(std::string(Phi::name) + "'", target, slope, 0));
      }
      EXPECT_TRUE(value.ulps <= Bound<Phi>::value) << row(Phi::name, target, value, Bound<Phi>::value);
      EXPECT_TRUE(slope.ulps <= Bound<Phi>::slope) << row(std::string(Phi::name) + "'", target, slope, Bound<Phi>::slope);
    });
  });
}

// The test of the test: errors of this size are seen, and a NaN is never taken for a small one.
TEST(Kernels, WorstSeesWhatIsWrong) {
  Worst worst;
  worst.see(1, 1 + 3 * eps, 1, 1);
  EXPECT_NEAR(worst.ulps, 3, 1e-6);
  worst.see(2, std::nan(""), 1, 1);
  worst.see(3, 1 + 9 * eps, 1, 1);
  EXPECT_FALSE(worst.ulps <= 1e9);
  EXPECT_EQ(worst.x, 2);
}

// A row of any length gives each number the bits it has in a long row, in place or not, and writes nothing behind its end.
TEST(Kernels, PhisAtEveryLength) {
  const auto x = grid();
  for_each_target([&](const std::string& target) {
    for_each_phi([&]<class Phi>() {
      std::vector<float> whole(x.size());
      apply_row<Phi>(x.data(), whole.data(), static_cast<Index>(x.size()));
      for (const Index n : sizes) {
        const float* from = x.data() + 17000;  // around zero, not aligned
        std::vector<float> y(z(n) + 1, guard);
        apply_row<Phi>(from, y.data(), n);
        std::vector<float> in_place(from, from + n + 1);
        in_place.back() = guard;
        apply_row<Phi>(in_place.data(), in_place.data(), n);
        for (Index i = 0; i < n; ++i) {
          ASSERT_EQ(y[z(i)], whole[z(17000 + i)]) << Phi::name << " " << target << " n " << n << " i " << i;
          ASSERT_EQ(in_place[z(i)], y[z(i)]) << Phi::name << " " << target << " n " << n << " i " << i << " in place";
        }
        ASSERT_EQ(y.back(), guard) << Phi::name << " " << target << " n " << n << " writes behind the end";
        ASSERT_EQ(in_place.back(), guard) << Phi::name << " " << target << " n " << n << " writes behind the end";
      }
    });
  });
}

TEST(Kernels, SlopesAddAtEveryLength) {
  const auto x = grid();
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> dy(3072), before(3072);
  for (float& v : dy) v = normal(random);
  for (float& v : before) v = normal(random);
  for_each_target([&](const std::string& target) {
    for_each_phi([&]<class Phi>() {
      for (const Index n : sizes) {
        const float* from = x.data() + 17000;
        std::vector<float> fresh(z(n) + 1, std::nanf("")), added(before.begin(), before.begin() + n);
        fresh.back() = guard;
        added.push_back(guard);
        apply_slope_row<Phi>(from, dy.data(), fresh.data(), n, false);
        apply_slope_row<Phi>(from, dy.data(), added.data(), n, true);
        for (Index i = 0; i < n; ++i) {
          const double at = static_cast<double>(from[i]), d = static_cast<double>(dy[z(i)]), b = static_cast<double>(before[z(i)]);
          const double exact = Phi::slope(at) * d;
          const double bound = eps * (Bound<Phi>::slope + 0.5) * slope_scale<Phi>(at, Phi::slope(at)) * std::abs(d);
          ASSERT_TRUE(std::abs(static_cast<double>(fresh[z(i)]) - exact) <= bound)
              << Phi::name << "' " << target << " n " << n << " x " << at << ": " << fresh[z(i)] << ", double " << exact;
          ASSERT_TRUE(std::abs(static_cast<double>(added[z(i)]) - (b + exact)) <= bound + eps * (std::abs(b) + std::abs(exact)))
              << Phi::name << "' added " << target << " n " << n << " x " << at << ": " << added[z(i)] << ", double " << b + exact;
        }
        ASSERT_EQ(fresh.back(), guard) << Phi::name << "' " << target << " n " << n << " writes behind the end";
        ASSERT_EQ(added.back(), guard) << Phi::name << "' " << target << " n " << n << " writes behind the end";
      }
    });
  });
}

// Scores below their largest: mostly within 12 of it, some so low that exp is denormal or 0.
std::vector<float> scores(Index n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::uniform_real_distribution<float> uniform(-12, 0);
  std::vector<float> x(z(n));
  for (Index i = 0; i < n; ++i) x[z(i)] = i % 11 == 10 ? -static_cast<float>(80 + i % 60) : uniform(random);
  x[z(n / 2)] = 0;
  return x;
}

// Rounding of n terms of that size, and of exp.
void expect_sum(float got, double exact, double size, Index n, const std::string& what) {
  const double bound = eps * (4 + 0.5 * static_cast<double>(n)) * size;
  EXPECT_TRUE(std::abs(static_cast<double>(got) - exact) <= bound) << what << " n " << n << ": " << got << ", double " << exact;
}

TEST(Kernels, SoftmaxRowsAgreeWithDouble) {
  for_each_target([&](const std::string& target) {
    for (const Index n : sizes) {
      std::vector<float> x = scores(n), d = scores(n);
      std::ranges::reverse(d);
      x.push_back(guard);
      d.push_back(guard);
      std::vector<double> wide(x.begin(), x.end()), wide_d(d.begin(), d.end());
      const double top_size = 140;  // of scores
      const auto spread = spread_row(x.data(), n);
      const auto exact = spread_row(wide.data(), n);
      expect_sum(spread.mean, exact.mean, top_size, n, target + " mean");
      expect_sum(spread.deviations, exact.deviations, exact.deviations + eps * top_size * top_size, n, target + " deviations");
      EXPECT_EQ(static_cast<double>(spread.top), exact.top) << target << " n " << n;

      std::vector<float> a = x;
      std::vector<double> wide_a = wide;
      const auto sums = exp_sums_row(a.data(), 0.0F, n);
      const auto exact_sums = exp_sums_row(wide_a.data(), 0.0, n);
      expect_sum(sums.total, exact_sums.total, exact_sums.total, n, target + " total");
      expect_sum(sums.moment, exact_sums.moment, exact_sums.total, n, target + " moment");
      expect_sum(sums.squares, exact_sums.squares, exact_sums.squares, n, target + " squares");
      scale_row(a.data(), 3.0F, n);
      for (Index i = 0; i < n; ++i) expect_sum(a[z(i)], 3 * wide_a[z(i)], 3 * wide_a[z(i)] + FLT_MIN, 1, target + " scaled");
      EXPECT_EQ(a.back(), guard) << target << " n " << n << " writes behind the end";

      a = x;
      wide_a = wide;
      const double log_sum = std::log(exact_sums.total);
      softmax_up_row(a.data(), d.data(), static_cast<float>(log_sum), n);
      softmax_up_row(wide_a.data(), wide_d.data(), log_sum, n);
      for (Index i = 0; i < n; ++i) {
        expect_sum(a[z(i)], wide_a[z(i)], wide_a[z(i)] + FLT_MIN, n + 8, target + " weight");
        expect_sum(d[z(i)], wide_d[z(i)], top_size * wide_a[z(i)] + top_size * FLT_MIN, n + 8, target + " gradient");
      }
      EXPECT_EQ(a.back(), guard) << target << " n " << n << " writes behind the end";
      EXPECT_EQ(d.back(), guard) << target << " n " << n << " writes behind the end";
    }
  });
}

TEST(Kernels, ExpRowsAgreeWithDouble) {
  constexpr double exp_bound = 1;  // worst 0.65
  constexpr float shift = 3.25F;   // exact in every sum below
  Worst worst;
  for_each_target([&](const std::string& target) {
    for (const Index n : sizes) {
      std::vector<float> x = scores(n);
      for (float& v : x) v = std::round(v * 1024) / 1024 + shift;  // x - shift is exact: exp alone is measured
      std::vector<float> y(z(n) + 1, guard), in_place = x;
      const float sum = exp_row(x.data(), shift, y.data(), n);
      const float sum_in_place = exp_row(in_place.data(), shift, in_place.data(), n);
      const float sum_only = exp_sum_row(x.data(), shift, n);
      double exact_sum = 0;
      for (Index i = 0; i < n; ++i) {
        const double exact = std::exp(static_cast<double>(x[z(i)]) - static_cast<double>(shift));
        exact_sum += exact;
        worst.see(static_cast<double>(x[z(i)] - shift), static_cast<double>(y[z(i)]), exact, std::max(exact, static_cast<double>(FLT_MIN)));
        ASSERT_EQ(y[z(i)], in_place[z(i)]) << target << " n " << n << " i " << i;
      }
      EXPECT_TRUE(worst.ulps <= exp_bound) << row("exp_row", target, worst, exp_bound);
      EXPECT_EQ(y.back(), guard) << target << " n " << n << " writes behind the end";
      EXPECT_EQ(y[z(n / 2)], 1.0F) << target << " n " << n << ": exp(0)";
      const double bound = eps * (exp_bound + 0.5 * static_cast<double>(n));
      EXPECT_TRUE(std::abs(static_cast<double>(sum) - exact_sum) <= bound * exact_sum)
          << target << " n " << n << " sum " << sum << ", double " << exact_sum;
      EXPECT_EQ(sum, sum_in_place) << target << " n " << n;
      EXPECT_EQ(sum, sum_only) << target << " n " << n;
    }
  });
  if (std::getenv("STEPZERO_SHOW_WORST") != nullptr) fmt::print("{}\n", row("exp_row", "all", worst, exp_bound));
}

TEST(Kernels, MaxRowFindsItEverywhere) {
  for_each_target([&](const std::string& target) {
    for (const Index n : sizes) {
      for (Index at = 0; at < n; at += std::max<Index>(1, n / 67)) {
        std::vector<float> x(z(n) + 1, -3.0F);
        x[z(at)] = -1.0F;  // all are negative: a zero from a padded register would win
        x.back() = guard;
        ASSERT_EQ(max_row(x.data(), n), -1.0F) << target << " n " << n << " at " << at;
        x[z(at)] = -std::numeric_limits<float>::infinity();
        ASSERT_EQ(max_row(x.data(), n), n == 1 ? x[0] : -3.0F) << target << " n " << n << " at " << at;
      }
    }
  });
}

TEST(Kernels, RowSumTakesEachTermOnce) {
  for (const Index n : sizes) {
    // whole numbers below 2^24: every order of adding gives the same float
    const float sum = row_sum<float>(n, [](Index i) { return static_cast<float>(i + 1); });
    EXPECT_EQ(sum, static_cast<float>(n * (n + 1) / 2)) << n;
  }
  EXPECT_EQ(row_sum<float>(0, [](Index) { return std::nanf(""); }), 0.0F);
}

TEST(Kernels, DotRowAgreesWithDouble) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  for (const Index n : sizes) {
    std::vector<float> a(z(n)), b(z(n));
    double exact = 0, size = 0;
    for (Index i = 0; i < n; ++i) {
      a[z(i)] = normal(random);
      b[z(i)] = normal(random);
      const double product = static_cast<double>(a[z(i)]) * static_cast<double>(b[z(i)]);
      exact += product;
      size += std::abs(product);
    }
    // one rounding for the product, n/16 in a lane, four to join the lanes; each half an eps
    const double bound = 0.5 * eps * (static_cast<double>(n) / 16 + 6) * size;
    const double got = static_cast<double>(dot_row(a.data(), b.data(), n));
    EXPECT_TRUE(std::abs(got - exact) <= bound) << "n " << n << ": " << got << ", double " << exact << ", bound " << bound;
  }
}

// ---- gemm

struct GemmCase {
  Index m, n, k;
  Trans ta, tb;
  double alpha, beta;
};

std::string name(const GemmCase& c) {
  return fmt::format("gemm m {} n {} k {} ta {} tb {} alpha {} beta {}", c.m, c.n, c.k, c.ta == Trans::yes, c.tb == Trans::yes, c.alpha,
                     c.beta);
}

// A matrix that is a block of a larger one, with guards around it.
template <class S>
struct Framed {
  Tensor<S> memory;
  View<S> view;

  Framed(Index rows, Index cols) : memory(rows + 2, cols + 5), view(memory.view().block(1, rows, 2, cols)) {
    std::fill_n(memory.data(), memory.size(), S(guard));
  }
  void draw(std::mt19937& random) {
    std::normal_distribution<double> normal;
    for (Index r = 0; r < view.rows; ++r) {
      for (Index c = 0; c < view.cols; ++c) view(r, c) = static_cast<S>(normal(random));
    }
  }
  [[nodiscard]] bool frame_is_whole() const {
    for (Index r = 0; r < memory.rows(); ++r) {
      for (Index c = 0; c < memory.cols(); ++c) {
        const bool inside = r >= 1 && r < 1 + view.rows && c >= 2 && c < 2 + view.cols;
        if (!inside && memory(r, c) != S(guard)) return false;
      }
    }
    return true;
  }
  template <class Wide>
  [[nodiscard]] Tensor<Wide> widened(bool absolute) const {
    Tensor<Wide> out(view.rows, view.cols);
    for (Index r = 0; r < view.rows; ++r) {
      for (Index c = 0; c < view.cols; ++c) out(r, c) = absolute ? std::abs(static_cast<Wide>(view(r, c))) : static_cast<Wide>(view(r, c));
    }
    return out;
  }
};

template <class S>
using GemmFunction = void (*)(Trans, Trans, S, View<const S>, View<const S>, S, View<S>);

// S against the loops in Wide, in units of eps(S) (k + 2) times the sum of the terms' magnitudes.
template <class S, class Wide>
void check_gemm(const GemmCase& g, GemmFunction<S> multiply = gemm<S>) {
  std::mt19937 random(static_cast<unsigned>(g.m * 1009 + g.n * 31 + g.k));
  const bool ta = g.ta == Trans::yes, tb = g.tb == Trans::yes;
  Framed<S> a(ta ? g.k : g.m, ta ? g.m : g.k), b(tb ? g.n : g.k, tb ? g.k : g.n), c(g.m, g.n);
  a.draw(random);
  b.draw(random);
  c.draw(random);
  const S alpha = static_cast<S>(g.alpha), beta = static_cast<S>(g.beta);
  auto exact = c.template widened<Wide>(false), size = c.template widened<Wide>(true);
  const auto run = [&](bool absolute, Tensor<Wide>& to) {
    const auto wide_a = a.template widened<Wide>(absolute), wide_b = b.template widened<Wide>(absolute);
    const Wide p = static_cast<Wide>(alpha), q = static_cast<Wide>(beta);
    gemm_reference<Wide>(g.ta, g.tb, absolute ? std::abs(p) : p, wide_a.view(), wide_b.view(), absolute ? std::abs(q) : q, to.view());
  };
  run(false, exact);
  run(true, size);
  if (beta == S(0)) {
    for (Index r = 0; r < g.m; ++r) std::fill_n(c.view.row(r), g.n, std::numeric_limits<S>::quiet_NaN());  // must not be read
  }
  multiply(g.ta, g.tb, alpha, a.view, b.view, beta, c.view);
  const Wide unit = static_cast<Wide>(std::numeric_limits<S>::epsilon()) * static_cast<Wide>(g.k + 2);
  for (Index r = 0; r < g.m; ++r) {
    for (Index col = 0; col < g.n; ++col) {
      const Wide error = std::abs(static_cast<Wide>(c.view(r, col)) - exact(r, col));
      ASSERT_TRUE(error <= unit * size(r, col)) << name(g) << (sizeof(S) == 4 ? " float" : " double") << " entry (" << r << ", " << col
                                                << "): " << c.view(r, col) << ", reference " << exact(r, col);
    }
  }
  ASSERT_TRUE(c.frame_is_whole() && a.frame_is_whole() && b.frame_is_whole()) << name(g) << " writes outside of its block";
}

TEST(Kernels, GemmAgreesWithReference) {
  constexpr Index shapes[][3] = {{1, 1, 1},    {2, 3, 5},    {7, 13, 17},   {33, 31, 67}, {64, 65, 127}, {1, 129, 31},
                                 {129, 1, 31}, {5, 7, 1000}, {96, 16, 1},   {17, 3, 0},   {1, 257, 1},   {3, 2, 3072},
                                 {16, 16, 64}, {64, 64, 64}, {21, 15, 256}, {11, 40, 90}, {400, 33, 21}};
  for (const auto& [m, n, k] : shapes) {
    for (const Trans ta : {Trans::no, Trans::yes}) {
      for (const Trans tb : {Trans::no, Trans::yes}) {
        for (const double alpha : {1.0, -0.7, 0.0}) {
          for (const double beta : {0.0, 1.0, 0.3}) {
            check_gemm<float, double>({m, n, k, ta, tb, alpha, beta});
            check_gemm<double, long double>({m, n, k, ta, tb, alpha, beta});
          }
        }
      }
    }
  }
}

// Our own kernel at the edges of its tiles, panels, blocks and strips.
TEST(Kernels, PackedProductAgreesWithReference) {
  constexpr Index shapes[][3] = {{1, 1, 1},    {3, 2, 5},     {4, 24, 4},    {5, 25, 3},    {8, 48, 8},
                                 {97, 23, 9},  {2, 200, 257}, {200, 2, 257}, {65, 385, 33}, {385, 65, 6},
                                 {257, 50, 7}, {261, 270, 5}, {49, 12, 513}, {261, 270, 8}, {20, 100, 516}};
  for_each_target([&](const std::string& target) {
    SCOPED_TRACE(target);
    for (const auto& [m, n, k] : shapes) {
      for (const Trans ta : {Trans::no, Trans::yes}) {
        for (const Trans tb : {Trans::no, Trans::yes}) {
          for (const double beta : {0.0, 1.0, 0.3}) check_gemm<float, double>({m, n, k, ta, tb, -0.7, beta}, kernels::packed_product);
        }
      }
    }
  });
}

// Three parts of bfloat16 hold to the bound of floats, at the edges of tiles, blocks, panels and strips.
TEST(Kernels, TileProductAgreesWithReference) {
  if (!kernels::has_tiles()) GTEST_SKIP() << "this processor has no tiles of bfloat16";
  constexpr Index shapes[][3] = {{1, 1, 1},      {3, 2, 5},      {16, 16, 32},   {17, 15, 33},  {32, 32, 64},  {33, 31, 47},
                                 {15, 49, 16},   {97, 23, 9},    {2, 200, 257},  {200, 2, 257}, {65, 385, 33}, {385, 65, 6},
                                 {50, 257, 769}, {257, 50, 770}, {40, 70, 1553}, {131, 129, 96}};
  for (const auto& [m, n, k] : shapes) {
    for (const Trans ta : {Trans::no, Trans::yes}) {
      for (const Trans tb : {Trans::no, Trans::yes}) {
        for (const double beta : {0.0, 1.0, 0.3}) check_gemm<float, double>({m, n, k, ta, tb, -0.7, beta}, kernels::tile_product);
      }
    }
  }
  check_gemm<float, double>({1030, 1050, 40, Trans::no, Trans::no, 1, 0.3}, kernels::tile_product);  // parts of the shorter side, too
  check_gemm<float, double>({1050, 1030, 40, Trans::no, Trans::yes, 1, 0.3}, kernels::tile_product);
}

// The order of a sum depends on the inner dimension alone, also where it comes in several packed parts.
TEST(Kernels, PiecesOfAProductHaveTheBitsOfTheWhole) {
  std::vector<GemmFunction<float>> products = {kernels::packed_product};
  if (kernels::has_tiles()) products.push_back(kernels::tile_product);
  for (const auto product : products) {
    constexpr Index few = 131, many = 4200, k = 9001, rows = 57, columns = 77, i0 = 31, j0 = 19;
    for (const bool tall : {false, true}) {
      for (const Trans ta : {Trans::no, Trans::yes}) {
        for (const Trans tb : {Trans::no, Trans::yes}) {
          const Index m = tall ? many : few, n = tall ? few : many;
          const Tensor<float> left = node_normals(1, "a", 0, ta == Trans::no ? m : k, ta == Trans::no ? k : m);
          const Tensor<float> right = node_normals(1, "b", 0, tb == Trans::no ? k : n, tb == Trans::no ? n : k);
          const View<const float> a = left.view(), b = right.view();
          Tensor<float> whole(m, n), piece(rows, columns);
          product(ta, tb, 1.0F, a, b, 0.0F, whole.view());
          product(ta, tb, 1.0F, ta == Trans::no ? a.slice(i0, rows) : a.columns(i0, rows),
                  tb == Trans::no ? b.columns(j0, columns) : b.slice(j0, columns), 0.0F, piece.view());
          for (Index i = 0; i < rows; ++i) {
            EXPECT_EQ(std::memcmp(piece.view().row(i), whole.view().row(i0 + i) + j0, columns * sizeof(float)), 0) << "row " << i;
          }
        }
      }
    }
  }
}

TEST(Kernels, GemmOfNothingTouchesNothing) {
  Framed<float> a(3, 4), b(4, 5), c(3, 5);
  gemm<float>(Trans::no, Trans::no, 1, a.view.slice(0, 0), b.view, 0, c.view.slice(0, 0));
  gemm<float>(Trans::no, Trans::no, 1, a.view, b.view.columns(0, 0), 0, c.view.columns(0, 0));
  for (Index r = 0; r < 3; ++r) {
    for (Index col = 0; col < 5; ++col) EXPECT_EQ(c.view(r, col), guard);
  }
}

// Libraries split the inner dimension of some of these over the threads.
TEST(Kernels, GemmHasTheSameBitsForAnyNumberOfThreads) {
  const int before = threads();
  for (const Trans ta : {Trans::no, Trans::yes}) {
    for (const Trans tb : {Trans::no, Trans::yes}) {
      for (const auto& [m, n, k] : {std::array<Index, 3>{8, 64, 3072},
                                    {16, 97, 682},
                                    {31, 48, 1024},
                                    {48, 48, 4096},
                                    {256, 256, 300},
                                    {100, 200, 800},
                                    {300, 900, 64},
                                    {900, 300, 64}}) {
        const Tensor<float> a = node_normals(1, "a", 0, ta == Trans::no ? m : k, ta == Trans::no ? k : m);
        const Tensor<float> b = node_normals(1, "b", 0, tb == Trans::no ? k : n, tb == Trans::no ? n : k);
        Tensor<float> first(m, n), c(m, n);
        set_threads(1);
        gemm(ta, tb, 1.0F, a.view(), b.view(), 0.0F, first.view());
        for (const int count : {2, 3, 5}) {
          set_threads(count);
          gemm(ta, tb, 1.0F, a.view(), b.view(), 0.0F, c.view());
          EXPECT_EQ(std::memcmp(first.data(), c.data(), static_cast<std::size_t>(c.size()) * sizeof(float)), 0)
              << name({m, n, k, ta, tb, 1, 0}) << " threads " << count;
        }
      }
    }
  }
  set_threads(before);
}

}  // namespace
}  // namespace stepzero
