#include "stepzero/core/gauss.hpp"

#include <numbers>

#include <gtest/gtest.h>

namespace stepzero {
namespace {

using std::numbers::pi;

double double_factorial(int n) { return n <= 1 ? 1.0 : n * double_factorial(n - 2); }

TEST(Gauss, KnownNodes) {
  const GaussHermite three(3);
  EXPECT_DOUBLE_EQ(three.nodes()[0], -std::sqrt(3.0));
  EXPECT_EQ(three.nodes()[1], 0.0);
  EXPECT_DOUBLE_EQ(three.weights()[0], 1.0 / 6);
  EXPECT_DOUBLE_EQ(three.weights()[1], 2.0 / 3);
  // He_4 = x^4 - 6 x^2 + 3.
  const GaussHermite four(4);
  EXPECT_DOUBLE_EQ(four.nodes()[3], std::sqrt(3 + std::sqrt(6.0)));
  EXPECT_DOUBLE_EQ(four.weights()[3], (3 - std::sqrt(6.0)) / 12);
}

TEST(Gauss, EveryRuleIsAscendingSymmetricAndExact) {
  for (int n = 1; n <= GaussHermite::max_nodes; n += n < 40 ? 1 : 20) {
    const GaussHermite rule(n);
    for (std::size_t i = 0; i < rule.size(); ++i) {
      const std::size_t mirror = rule.size() - 1 - i;
      ASSERT_TRUE(i == 0 || rule.nodes()[i - 1] < rule.nodes()[i]) << n;
      ASSERT_EQ(rule.nodes()[i], -rule.nodes()[mirror]) << n;
      ASSERT_GT(rule.weights()[i], 0) << n;
    }
    // E x^2p = (2p - 1)!! up to the last degree the rule integrates.
    for (int p = 0; p <= std::min(n - 1, 60); ++p) {
      const double moment = expect([&](double x) { return std::pow(x, 2 * p); }, 1, rule);
      const double exact = double_factorial(2 * p - 1);
      ASSERT_LE(std::abs(moment / exact - 1), 1e-14 * (2 + p)) << "n " << n << " degree " << 2 * p;
    }
  }
}

TEST(Gauss, SharesOneRule) { EXPECT_EQ(GaussHermite(40).nodes().data(), GaussHermite(40).nodes().data()); }

TEST(Gauss, Polynomials) {
  for (int p = 0; p <= 30; ++p) {
    const double exact = double_factorial(2 * p - 1) * std::pow(0.7, 2 * p);
    EXPECT_NEAR(expect([&](double x) { return std::pow(x, 2 * p); }, 0.7) / exact, 1, 1e-14 * (1 + p)) << 2 * p;
    EXPECT_EQ(expect([&](double x) { return std::pow(x, 2 * p + 1); }, 0.7), 0) << 2 * p + 1;
  }
}

TEST(Gauss, Exponential) {
  for (const double s : {0.0, 0.1, 1.0, 3.0}) {
    EXPECT_NEAR(expect([](double x) { return std::exp(x); }, s) / std::exp(s * s / 2), 1, 1e-14) << s;
  }
}

// The steeper, the harder: from a straight line to almost a step. The witness is a fine trapezium rule, which for
// such integrands is as good as any.
TEST(Gauss, TanhOnEveryScale) {
  const auto square = [](double x) { return std::tanh(x) * std::tanh(x); };
  const auto slope = [](double x) { return 1 / (std::cosh(x) * std::cosh(x)); };
  for (const double s : {0.01, 0.5, 1.0, 2.0, 10.0, 50.0}) {
    double square_witness = 0, slope_witness = 0;
    const double h = 0.02 / (1 + s);
    for (double z = -12; z <= 12; z += h) {
      const double mass = std::exp(-z * z / 2) * h / std::sqrt(2 * pi);
      square_witness += square(s * z) * mass;
      slope_witness += slope(s * z) * mass;
    }
    EXPECT_NEAR(expect(square, s) / square_witness, 1, 1e-12) << s;
    EXPECT_NEAR(expect(slope, s) / slope_witness, 1, 1e-11) << s;
    if (s > 1) continue;
    // The poles of tanh hold Gauss-Hermite back: about exp(-pi sqrt(n) / s), times the order of the pole.
    EXPECT_NEAR(expect(square, s, GaussHermite(96)), square_witness, 1e-13 + 400 * std::exp(-pi * std::sqrt(96.0) / s)) << s;
  }
}

// Why not Gauss-Hermite: a kink costs it 1/n.
TEST(Gauss, KinkIsExactHereAndSlowThere) {
  const auto relu = [](double x) { return std::max(x, 0.0); };
  const double exact = 1 / std::sqrt(2 * pi);
  EXPECT_NEAR(expect(relu, 1), exact, 1e-15);
  for (const int n : {25, 50, 100, 200}) {
    const double error = std::abs(expect(relu, 1, GaussHermite(n)) - exact);
    EXPECT_LE(error, 0.4 / n) << n;
    EXPECT_GE(error, 0.01 / n) << n;
  }
}

TEST(Gauss, PolynomialPairs) {
  const auto f = [](double u) { return u * u * u + 2 * u; };
  const auto g = [](double v) { return v * v * v - v; };
  for (const double r : {-1.0, -0.7, 0.0, 0.3, 1.0}) {
    const double a = 1.7, b = 0.4;  // standard deviations
    const double c = r * a * b;
    // Isserlis: E u^3 v^3 = 9 a^2 b^2 c + 6 c^3, E u^3 v = 3 a^2 c, E u v^3 = 3 b^2 c.
    const double exact = 9 * a * a * b * b * c + 6 * c * c * c - 3 * a * a * c + 6 * b * b * c - 2 * c;
    EXPECT_NEAR(expect_pair(f, g, a * a, b * b, c), exact, 1e-13 * (1 + std::abs(exact))) << r;
  }
}

TEST(Gauss, ErfPairIsAsin) {
  const auto f = [](double u) { return std::erf(u); };
  for (const double r : {-1.0, -0.99, 0.0, 0.5, 0.999, 1.0}) {
    const double var_u = 0.5, var_v = 0.8;
    const double cov = r * std::sqrt(var_u * var_v);
    const double exact = 2 / pi * std::asin(2 * cov / std::sqrt((1 + 2 * var_u) * (1 + 2 * var_v)));
    EXPECT_NEAR(expect_pair(f, f, var_u, var_v, cov), exact, 1e-13) << r;
  }
}

TEST(Gauss, ReluPairIsArcCosineKernel) {
  const auto relu = [](double u) { return std::max(u, 0.0); };
  const auto step = [](double u) { return u > 0 ? 1.0 : 0.0; };
  for (const double r : {-1.0, -0.99, -0.5, 0.0, 0.2, 0.9, 0.999999, 1.0}) {
    const double angle = std::acos(r);
    const double kernel = (std::sin(angle) + (pi - angle) * r) / (2 * pi);
    EXPECT_NEAR(expect_pair(relu, relu, 4, 9, 6 * r), 6 * kernel, 1e-14 * 6) << r;
    EXPECT_NEAR(expect_pair(step, step, 4, 9, 6 * r), (pi - angle) / (2 * pi), 1e-14) << r;
  }
}

TEST(Gauss, SteepPairs) {
  const auto f = [](double u) { return std::erf(u); };
  for (const double r : {-0.9, 0.3, 1.0}) {
    const auto error = [&](double var) {
      return std::abs(expect_pair(f, f, var, var, r * var) - 2 / pi * std::asin(2 * r * var / (1 + 2 * var)));
    };
    EXPECT_LE(error(1e2), 1e-9) << r;
    EXPECT_LE(error(1e4), 1e-6) << r;
    EXPECT_LE(error(1e8), 2e-5) << r;
  }
}

TEST(Gauss, PairEdges) {
  const auto f = [](double u) { return 1 + u; };
  EXPECT_DOUBLE_EQ(expect_pair(f, f, 0, 2, 0), 1);
  EXPECT_DOUBLE_EQ(expect_pair(f, f, 2, 0, 0), 1);
  EXPECT_DOUBLE_EQ(expect_pair(f, f, 0, 0, 0), 1);
  EXPECT_NEAR(expect_pair(f, f, 2, 2, 2.0000000001), 3, 1e-13);  // past 1 by rounding
  EXPECT_NEAR(expect_pair(f, f, 2, 2, -2.0000000001), -1, 1e-13);
  EXPECT_NEAR(expect_pair(f, f, 1e-300, 1e-300, 1e-300), 1, 1e-13);
}

TEST(Gauss, HermiteCoefficients) {
  // x^3 at std s: s^3 (He_3 + 3 He_1), He_3 / sqrt(6) normalised.
  const double s = 1.3;
  const auto cube = hermite_coefficients([](double x) { return x * x * x; }, s, 5);
  const double expected[] = {0, 3 * s * s * s, 0, std::sqrt(6.0) * s * s * s, 0, 0};
  for (std::size_t k = 0; k < 6; ++k) EXPECT_NEAR(cube[k], expected[k], 1e-13) << k;
  // exp(s z) = exp(s^2 / 2) sum_k s^k / sqrt(k!) h_k.
  const auto growth = hermite_coefficients([](double x) { return std::exp(x); }, s, max_hermite);
  double exact = std::exp(s * s / 2);
  for (std::size_t k = 0; k < growth.size(); ++k) {
    EXPECT_NEAR(growth[k], exact, 1e-13 * std::exp(s * s / 2)) << k;
    exact *= s / std::sqrt(static_cast<double>(k) + 1);
  }
  // ReLU: a_k = (-1)^(k/2 + 1) (k - 3)!! / sqrt(2 pi k!) for even k > 1.
  const auto relu = hermite_coefficients([](double x) { return std::max(x, 0.0); }, 1, max_hermite);
  EXPECT_NEAR(relu[1], 0.5, 1e-15);
  for (int k = 2; k <= max_hermite; k += 2) {
    const double size = double_factorial(k - 3) / std::sqrt(2 * pi * std::tgamma(k + 1.0));
    EXPECT_NEAR(relu[static_cast<std::size_t>(k)], k % 4 == 0 ? -size : size, 1e-14) << k;
  }
  // Parseval.
  double energy = 0;
  for (const double a : hermite_coefficients([](double x) { return std::erf(x); }, 0.5, max_hermite)) energy += a * a;
  EXPECT_NEAR(energy, 2 / pi * std::asin(0.5 / 1.5), 1e-13);
}

}  // namespace
}  // namespace stepzero
