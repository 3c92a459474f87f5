// What few heads do to the cosines of single pairs of tokens: what attention says of it, and kernels drawn with it.
#include "stepzero/ops/head_variance.hpp"

#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/finite/all.hpp"

namespace stepzero {
namespace {

constexpr Index kTokens = 6, dk = 8, heads = 4;

Kernel tokens_alike(double cosine) {
  return Kernel::from(kTokens, [=](Index t, Index s) { return t == s ? 1 : cosine; });
}

Batch sequence() {
  Batch batch;
  batch.sequences = 1;
  batch.length = kTokens;
  batch.ids.assign(static_cast<std::size_t>(kTokens), 0);
  return batch;
}

// The variance of the cosine of token t with the earlier ones, in units of (1 - rho^2)^2.
class Variance {
 public:
  void add(const Tensor<float>& K) {
    for (Index t = 0; t < kTokens; ++t) {
      for (Index s = 0; s < t; ++s) seen_[t][s].add(static_cast<double>(K(t, s)) / std::sqrt(static_cast<double>(K(t, t) * K(s, s))));
    }
  }
  [[nodiscard]] double row(Index t) const {
    double sum = 0, units = 0;
    for (Index s = 0; s < t; ++s) {
      sum += seen_[t][s].variance();
      units += std::pow(1 - seen_[t][s].mean * seen_[t][s].mean, 2);
    }
    return sum / units;
  }

 private:
  Running seen_[kTokens][kTokens];
};

TEST(Jitter, IsWhatTheModelsHeadsDoToPairs) {
  const Batch batch = sequence();
  DownWire m;
  m.K = tokens_alike(0.3);
  const Attention op{.heads = heads, .kv_heads = heads, .key_dim = dk, .value_dim = dk, .scale = 1.5 / std::sqrt(static_cast<double>(dk))};
  const std::array<const DownWire*, 3> x = {&m, &m, &m};
  const DownWire y = push_finite(op, PushDoor{batch, x, {}, {.place = 3, .effort = 1e11}});
  ASSERT_EQ(std::ssize(y.f.fresh), kTokens);

  const Tensor<float> root = kernels::root(m.K, 1);
  Variance seen;
  for (Index draw = 0; draw < 3000; ++draw) {
    Tensor<float> K(kTokens, kTokens);
    for (Index h = 0; h < heads; ++h) {
      const Tensor<float> q = product(Trans::yes, Trans::no, root, node_normals(1, "q", draw * heads + h, kTokens, dk));
      const Tensor<float> k = product(Trans::yes, Trans::no, root, node_normals(2, "k", draw * heads + h, kTokens, dk));
      Tensor<float> a = product(Trans::no, Trans::yes, q, k);
      for (Index t = 0; t < kTokens; ++t) {
        double sum = 0;
        for (Index s = 0; s < kTokens; ++s) {
          a(t, s) = s <= t ? static_cast<float>(std::exp(op.scale * static_cast<double>(a(t, s)))) : 0;
          sum += static_cast<double>(a(t, s));
        }
        for (Index s = 0; s < kTokens; ++s) a(t, s) /= static_cast<float>(sum);
      }
      const Tensor<float> mix = product(Trans::no, Trans::yes, a, root), one = product(Trans::no, Trans::yes, mix, mix);
      for (Index i = 0; i < K.size(); ++i) K.data()[i] = (h > 0 ? K.data()[i] : 0) + one.data()[i];
    }
    seen.add(K);
  }
  // to first order in what four heads differ by, and to the noise of both: a third less or more would be seen
  for (Index t = 1; t < kTokens; ++t) EXPECT_NEAR(y.f.fresh[static_cast<std::size_t>(t)] / seen.row(t), 1, 0.15) << t;
  EXPECT_GT(y.f.fresh[1], 2 * y.f.fresh[kTokens - 1]) << "few keys, much jitter";
}

TEST(Jitter, DrawnKernelsHaveIt) {
  constexpr double noise = 0.004;
  DownWire x;
  x.K = tokens_alike(0.4);
  x.f.jitter = {0, 0.05, 0.03, 0.02, 0.015, 0.01};
  const KernelDraw kernels(x, noise, kTokens, 8);
  Variance seen;
  Running mean, pair;
  for (Index i = 0; i < 20000; i += 2) {
    double sum = 0;
    for (Index j = i; j < i + 2; ++j) {
      const Tensor<float> root = kernels.root(j), K = product(Trans::no, Trans::yes, root, root);
      seen.add(K);
      double one = 0;
      for (Index t = 0; t < kTokens; ++t) {
        ASSERT_NEAR(static_cast<double>(K(t, t)), 1, 1e-5);
        for (Index s = 0; s < t; ++s) one += static_cast<double>(K(t, s)) / (kTokens * (kTokens - 1) / 2.0);
      }
      mean.add(one);
      sum += one / 2;
    }
    pair.add(sum);
  }
  // later tokens have some of the jitter of those they are like, and what sizes take off cosines is made up for to first order only
  for (Index t = 1; t < kTokens; ++t) EXPECT_NEAR(seen.row(t) / (noise + x.f.jitter[static_cast<std::size_t>(t)]), 1, 0.25) << t;
  EXPECT_NEAR(mean.mean, 0.4, 0.005);
  EXPECT_LT(pair.variance(), mean.variance() / 10) << "two draws in opposite directions";
}

}  // namespace
}  // namespace stepzero
