// What single draws differ by, by definition: the noise of sums and of heads, and what grows with the spread of tokens.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/ops/head_variance.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/multiply.hpp"
#include "stepzero/ops/norm.hpp"
#include "stepzero/ops/residual.hpp"

namespace stepzero {
namespace {

Batch one_sequence(Index length) {
  Batch batch;
  batch.sequences = 1;
  batch.length = length;
  batch.ids.assign(static_cast<std::size_t>(length), 0);
  return batch;
}

// Entries off by e = k_ts - rho (k_tt + k_ss) / 2 in every head; the variance of e in units of (1 - rho^2)^2.
TEST(Noise, OfHeadsByDefinition) {
  constexpr Index tokens = 4, heads = 5, first = 1, t = 3;
  std::vector<Tensor<float>> all;
  Matrix sum = zeros(tokens);
  Pairs pairs(tokens);
  for (Index h = 0; h < heads; ++h) {
    const Tensor<float> x = node_normals(1, "x", h, tokens, 7);
    all.push_back(gram(x));
    pairs.add(all.back());
    add(all.back(), sum);
  }
  double variance = 0, units = 0;
  for (Index s = first; s < t; ++s) {
    const double a = sum(t, t) / heads, b = sum(s, s) / heads, rho = sum(t, s) / heads / std::sqrt(a * b);
    for (const Tensor<float>& K : all) {
      const double off =
          static_cast<double>(K(t, s)) / std::sqrt(a * b) - rho * (static_cast<double>(K(t, t)) / a + static_cast<double>(K(s, s)) / b) / 2;
      variance += off * off / heads;
    }
    units += std::pow(1 - rho * rho, 2);
  }
  EXPECT_NEAR(pairs.noise(sum, 1.0 / heads, first, t), variance / units, 1e-10 * variance / units);
}

TEST(Noise, PowerIsTheSlopeInUnitsOfTheMean) {
  Power<2> power;
  double mean = 0;
  constexpr int count = 7;
  for (int i = 0; i < count; ++i) {
    const double x = std::sin(3.0 * i);
    power.add(x, {2 + 3 * x, 5});
    mean += x / count;
  }
  EXPECT_NEAR(power(0), 3 / (2 + 3 * mean), 1e-12);
  EXPECT_NEAR(power(1), 0, 1e-12);
}

// A stream and a branch that have their products in every draw, in directions that know nothing of each other: their sum's have noise.
TEST(Noise, OfASumFromDirectionsThatCross) {
  constexpr Index n = 400;
  constexpr double r = 0.3, c = 0.6, size = 0.7;
  const auto pair = [](double cosine, double square) {
    DownWire m;
    m.K = Kernel::from(2, [=](Index t, Index s) { return t == s ? square : square * cosine; });
    return m;
  };
  const DownWire x = pair(r, 1), f = pair(c, size);
  const Batch batch = one_sequence(2);
  const std::array<const DownWire*, 2> both = {&x, &f};
  const DownWire y = push_finite(Residual{.width = n}, PushDoor{batch, both, {}});
  Running cosine;
  for (Index i = 0; i < 20000; ++i) {
    const Tensor<float> z = node_normals(3, "f", i, 2, n);
    double uu = 0, uv = 0, vv = 0;
    for (Index k = 0; k < n; ++k) {
      const double u = static_cast<double>(z(0, k)), v = static_cast<double>(z(1, k));
      uu += u * u;
      uv += u * v;
      vv += v * v;
    }
    const double rest = std::sqrt(vv - uv * uv / uu);
    // the first two entries of the branch's tokens; those of the stream are (1, 0) and (r, (1 - r^2)^1/2)
    std::array<double, 2> f0{}, f1{};
    for (Index k = 0; k < 2; ++k) {
      const double u = static_cast<double>(z(0, k)) / std::sqrt(uu);
      const double v = (static_cast<double>(z(1, k)) - uv / uu * static_cast<double>(z(0, k))) / rest;
      f0[static_cast<std::size_t>(k)] = std::sqrt(size) * u;
      f1[static_cast<std::size_t>(k)] = std::sqrt(size) * (c * u + std::sqrt(1 - c * c) * v);
    }
    const std::array<double, 2> x0 = {1, 0}, x1 = {r, std::sqrt(1 - r * r)};
    const auto dot = [](const auto& a, const auto& b) { return a[0] * b[0] + a[1] * b[1]; };
    const double both_ways = r + size * c + dot(x0, f1) + dot(f0, x1);
    cosine.add(both_ways / std::sqrt((1 + size + 2 * dot(x0, f0)) * (1 + size + 2 * dot(x1, f1))));
  }
  const double z = y.K.mean_cosine();
  EXPECT_NEAR(cosine.variance() / (y.f.noise * std::pow(1 - z * z, 2)), 1, 0.04);
}

// Heads mix what differs between tokens: where a draw's tokens differ more, less is left, and the norm behind hands more gradient on.
TEST(Noise, GradientsGrowWhereTokensDifferMore) {
  const Batch batch = one_sequence(6);
  DownWire m;
  m.K = Kernel::from(6, [](Index t, Index s) { return t == s ? 1 : 0.5; });
  m.f.noise = 0.1;
  m.width = 32;
  const Attention op{.heads = 4, .kv_heads = 4, .key_dim = 8, .value_dim = 8, .scale = 0.5};
  const std::array<const DownWire*, 3> x = {&m, &m, &m};
  const DownWire y = push_finite(op, PushDoor{batch, x, {}, {.place = 3, .effort = 1e10}});
  EXPECT_GT(y.f.thins, 0.05);

  const std::array<const DownWire*, 1> to_norm = {&y};
  const RmsNorm norm{.width = y.width > 0 ? y.width : 32};
  const Law gain{1, 0};
  const DownWire flat = push_finite(norm, PushDoor{batch, to_norm, {&gain, 1}});
  UpWire dy;
  dy.G = Kernel::from(6, [](Index t, Index s) { return t == s ? 1 : 0; });
  EXPECT_EQ(pull_finite(norm, PullDoor{batch, to_norm, {&gain, 1}, flat, dy}).dx[0].r.stretch, y.f.thins);

  const Pulled plain = pull_finite(op, PullDoor{batch, x, {}, y, dy, {.place = 3, .effort = 1e10}});
  dy.r.stretch = 1;
  const Pulled stretched = pull_finite(op, PullDoor{batch, x, {}, y, dy, {.place = 3, .effort = 1e10}});
  // q and k go with the spread of the draw already, as squares and once: the mean gradient is larger where the two meet
  EXPECT_GT(stretched.dx[0].G.trace() / plain.dx[0].G.trace(), 1.005);
  EXPECT_GT(stretched.dx[0].G.trace() / plain.dx[0].G.trace(), stretched.dx[2].G.trace() / plain.dx[2].G.trace());
}

// Both factors of a product are made from one input: in one draw their cosines are off together, and so is the product of the two.
TEST(Noise, OfAProductFromOneInput) {
  constexpr Index n = 300;
  constexpr double rho = 0.6;
  DownWire m;
  m.K = Kernel::from(2, [](Index t, Index s) { return t == s ? 1 : rho; });
  m.width = 1000000;
  m.f.noise = 1.0 / n + 1e-6;
  m.f.swing = 0.01;
  const Batch batch = one_sequence(2);
  const std::array<const DownWire*, 2> both = {&m, &m};
  const DownWire y = push_finite(Multiply{.width = 1000000}, PushDoor{batch, both, {}});
  Running square;
  for (Index i = 0; i < 20000; ++i) {
    const Tensor<float> z = node_normals(4, "x", i, 2, n);
    double uu = 0, uv = 0, vv = 0;
    for (Index k = 0; k < n; ++k) {
      const double u = static_cast<double>(z(0, k)), v = rho * u + std::sqrt(1 - rho * rho) * static_cast<double>(z(1, k));
      uu += u * u;
      uv += u * v;
      vv += v * v;
    }
    square.add(uv * uv / (uu * vv));
  }
  const double apart = 1 - std::pow(rho, 4);
  EXPECT_NEAR(square.variance() / (y.f.noise * apart * apart), 1, 0.04);
  // d (1 - rho^2) / (1 - rho^2) = 2 rho / (1 + rho) of d (1 - rho) / (1 - rho)
  const double z = y.K.mean_cosine();  // a little above rho^2: what both are off by together lifts the product
  EXPECT_NEAR(y.f.swing / m.f.swing, std::pow(2 * rho * (1 - rho) / (1 - z), 2), 1e-9);
  EXPECT_NEAR(z, rho * rho + std::pow(1 - rho * rho, 2) / n, 1e-6);
}

TEST(Noise, HeadsThatLookAtTheSameMakeTheSameOfTheirValues) {
  constexpr Index tokens = 5, heads = 5;
  const Kernel V = Kernel::from(tokens, [](Index t, Index s) { return t == s ? 1 : 0.2; });
  MeanWeights same, apart;
  Tensor<float> even(tokens, tokens);
  std::fill_n(even.data(), even.size(), 1.0F / tokens);
  for (Index h = 0; h < heads; ++h) {
    same.add(even);
    Tensor<float> one(tokens, tokens);
    for (Index t = 0; t < tokens; ++t) {
      for (Index j = 0; j < tokens; ++j) one(t, j) = j == (t + h) % tokens ? 1.0F : 0.0F;
    }
    apart.add(one);
  }
  const double mean = (1 + 0.2 * (tokens - 1)) / tokens;  // of what all values are together
  EXPECT_NEAR(same.overlap(V, Kernel::from(tokens, [&](Index, Index) { return mean; })), 1, 1e-6);
  EXPECT_NEAR(apart.overlap(V, V), mean * mean, 1e-6);

  // and so fewer values for as many heads have less noise than their channels would
  const Batch batch = one_sequence(6);
  DownWire m;
  m.K = Kernel::from(6, [](Index t, Index s) { return t == s ? 4 : 1; });
  m.f.noise = 1.0 / 16;
  m.width = 16;
  const Attention op{.heads = 4, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .scale = 0.5};
  const std::array<const DownWire*, 3> x = {&m, &m, &m};
  const DownWire y = push_finite(op, PushDoor{batch, x, {}, {.place = 3, .effort = 1e9}});
  EXPECT_LT(y.f.noise, 0.95 / 16);
  EXPECT_GT(y.f.noise, 0.5 / 16);
}

}  // namespace
}  // namespace stepzero
