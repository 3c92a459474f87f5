// The cosine of two tokens in one draw differs from its mean, and the kernel of a function bends.
#include "stepzero/ops/function_kernel.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stepzero/ops/elementwise.hpp"
#include "stepzero/ops/finite/all.hpp"

namespace stepzero {
namespace {

DownWire pair(double rho, double noise) {
  DownWire x;
  x.K = Kernel::from(2, [&](Index t, Index s) { return t == s ? 1.0 : rho; });
  x.width = 1000;
  x.f.noise = noise + 1e-3;  // and that of its own channels, which a mean over them does not feel
  return x;
}

template <class Phi>
DownWire pushed(const DownWire& x) {
  const Batch batch{.length = 2, .ids = {0, 1}, .targets = {}};
  const DownWire* const in[] = {&x};
  return push_finite(Elementwise<Phi>{.width = 1000}, PushDoor{.batch = batch, .x = in, .theta = {}});
}

// Against tokens drawn in `channels` channels and put back to their size.
template <class Phi>
void against_draws(double toward) {
  constexpr int channels = 40, draws = 4000;
  std::mt19937_64 bits(3);
  std::normal_distribution<double> normal;
  std::vector<double> cosines;
  for (int i = 0; i < draws; ++i) {
    double aa = 0, ab = 0, bb = 0;
    for (int c = 0; c < channels; ++c) {
      const double a = normal(bits), b = toward * a + std::sqrt(1 - toward * toward) * normal(bits);
      aa += a * a;
      ab += a * b;
      bb += b * b;
    }
    cosines.push_back(ab / std::sqrt(aa * bb));
  }
  double rho = 0, square = 0, first = 0, second = 0;
  for (const double c : cosines) {
    const DownWire y = pushed<Phi>(pair(c, 0));
    const double kappa = y.K(0, 1) / y.K(0, 0);
    rho += c / draws;
    square += c * c / draws;
    first += kappa / draws;
    second += kappa * kappa / draws;
  }
  const double spread = square - rho * rho, noise = spread / ((1 - rho * rho) * (1 - rho * rho));
  EXPECT_NEAR(noise * channels, 1, 0.1);
  const DownWire plain = pushed<Phi>(pair(rho, 0)), y = pushed<Phi>(pair(rho, noise));
  const double straight = plain.K(0, 1) / plain.K(0, 0), kappa = y.K(0, 1) / y.K(0, 0);
  EXPECT_GT(std::abs(first - straight), 1e-3);
  EXPECT_NEAR((kappa - straight) / (first - straight), 1, 0.15) << rho;
  const double off = 1 - first * first;
  EXPECT_NEAR((y.f.noise - 1e-3) / ((second - first * first) / (off * off)), 1, 0.2) << rho;
}

TEST(FunctionKernel, BendsTheCosineOfOneDraw) {
  against_draws<Relu>(0.1);
  against_draws<Relu>(0.6);
  against_draws<GeluTanh>(0.1);
  against_draws<ReluSquared>(0.3);
}

}  // namespace
}  // namespace stepzero
