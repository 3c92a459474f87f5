// Kernels as single draws show them, and what an attention makes of the sizes of drawn gradients.
#include "stepzero/ops/kernel_draw.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include "stepzero/core/running.hpp"
#include "stepzero/ops/head_tools.hpp"

namespace stepzero {
namespace {

constexpr Index tokens = 4;

// Cosines from 0.4 to 0.7 between tokens of sizes that differ.
Kernel tokens_alike() {
  return Kernel::from(tokens, [](Index t, Index s) {
    const double size = std::sqrt((1 + 0.3 * static_cast<double>(t)) * (1 + 0.3 * static_cast<double>(s)));
    return size * (t == s ? 1 : 0.3 + 0.4 / static_cast<double>(t - s));
  });
}

// Draws of as few channels have cosines that are 2 % too small where tokens are put back to their sizes: KernelDraw makes up for it.
TEST(KernelDraw, TokensKeepTheirSizesAndTheMeanCosines) {
  constexpr Index draws = 40000;
  constexpr double channels = 16;
  DownWire x;
  x.K = tokens_alike();  // token_drift = 0: sizes do not vary
  const KernelDraw kernels(x, 1 / channels, tokens, 5);
  Running seen[tokens][tokens], all;
  double rule = 0;
  for (Index i = 0; i < draws; ++i) {
    const Tensor<float> root = kernels.root(i), K = product(Trans::no, Trans::yes, root, root);
    double sum = 0;
    for (Index t = 0; t < tokens; ++t) {
      ASSERT_NEAR(static_cast<double>(K(t, t)), x.K(t, t), 1e-5 * x.K(t, t));
      for (Index s = 0; s < t; ++s) {
        const double cosine = static_cast<double>(K(t, s)) / std::sqrt(x.K(t, t) * x.K(s, s));
        seen[t][s].add(cosine);
        sum += cosine;
      }
    }
    all.add(sum);
  }
  constexpr double second_order = 0.5 / (channels * channels);
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s < t; ++s) {
      const double cosine = x.K(t, s) / std::sqrt(x.K(t, t) * x.K(s, s));
      rule += cosine;
      EXPECT_TRUE(std::abs(seen[t][s].mean - cosine) <= 6 * seen[t][s].error() + second_order)
          << t << " " << s << ": drawn " << seen[t][s].mean << " +- " << seen[t][s].error() << ", kernel " << cosine;
    }
  }
  EXPECT_TRUE(std::abs(all.mean / rule - 1) <= 6 * all.error() / rule + second_order) << all.mean << " " << rule;
  EXPECT_LE(6 * all.error() / rule + second_order, 0.01) << "too few draws to see that cosines are 2 % off";
}

// Where sizes vary as freely as a sample covariance's, the drawn kernels have the kernel as their mean as they are.
TEST(KernelDraw, FreeSizesHaveTheKernelAsTheirMean) {
  constexpr Index draws = 60000;
  constexpr double channels = 16;
  DownWire x;
  x.K = tokens_alike();
  x.f.token_drift = 2 / channels;
  const KernelDraw kernels(x, 1 / channels, tokens, 6);
  Running seen[tokens][tokens];
  for (Index i = 0; i < draws; ++i) {
    const Tensor<float> root = kernels.root(i), K = product(Trans::no, Trans::yes, root, root);
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s <= t; ++s) seen[t][s].add(static_cast<double>(K(t, s)) / x.K(t, s));
    }
  }
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s <= t; ++s) {
      EXPECT_TRUE(std::abs(seen[t][s].mean - 1) <= 6 * seen[t][s].error() + 1e-3)
          << t << " " << s << ": " << seen[t][s].mean;  // 1e-3: of a chi's limit
      EXPECT_LE(6 * seen[t][s].error(), 0.018);
    }
  }
}

// What turned with the tokens gets their sizes; cosines stay.
TEST(WithSizes, TokensGetTheSizesAndKeepTheirCosines) {
  const Kernel drawn = tokens_alike();
  const Kernel sizes = Kernel::from(tokens, [](Index t, Index s) { return t == s ? 2.5 - 0.4 * static_cast<double>(t) : 0.1; });
  const Kernel tail = Kernel::from(tokens, [&](Index t, Index s) { return 0.25 * drawn(t, s) + (t == s ? 0.01 : 0); });
  const Kernel own = with_sizes(drawn, drawn, sizes), part = with_sizes(tail, drawn, sizes);
  for (Index t = 0; t < tokens; ++t) {
    EXPECT_NEAR(own(t, t), sizes(t, t), 1e-12);
    EXPECT_NEAR(part(t, t) / own(t, t), tail(t, t) / drawn(t, t), 1e-12);  // its share of the token
    for (Index s = 0; s < t; ++s) {
      EXPECT_NEAR(own(t, s) / std::sqrt(own(t, t) * own(s, s)), drawn(t, s) / std::sqrt(drawn(t, t) * drawn(s, s)), 1e-12);
      EXPECT_NEAR(part(t, s), tail(t, s) * std::sqrt(sizes(t, t) * sizes(s, s) / (drawn(t, t) * drawn(s, s))), 1e-12);
    }
  }
}

TEST(WithSizes, ATokenThatDrewNothingHasNothing) {
  const Kernel drawn = Kernel::from(2, [](Index t, Index s) { return t == 0 && s == 0 ? 4.0 : 0.0; });
  const Kernel out = with_sizes(drawn, drawn, Kernel::from(2, [](Index, Index) { return 1.0; }));
  EXPECT_EQ(out(0, 0), 1);
  EXPECT_EQ(out(1, 0), 0);
  EXPECT_EQ(out(1, 1), 0);
}

}  // namespace
}  // namespace stepzero
