// Sums over what two tokens see, with and without a rotation, against plain sums.
#include "stepzero/ops/attention_sight.hpp"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace stepzero {
namespace {

struct SightCase {
  std::string name;
  Attention op;
  Index sequences, length;
  bool reversed;
  Index turned;  // channels of 12; 0: no rotation
  double base = 30;
};

std::vector<SightCase> sight_cases() {
  std::vector<SightCase> out;
  for (const bool reversed : {false, true}) {
    const std::string name = reversed ? "queries" : "keys";
    out.push_back({name + "Flat", {.causal = true}, 1, 9, reversed, 0});
    out.push_back({name + "Causal", {.causal = true}, 1, 9, reversed, 12});
    out.push_back({name + "Both", {.causal = false}, 1, 9, reversed, 12});
    out.push_back({name + "Window", {.causal = true, .window = 4}, 1, 9, reversed, 12});
    out.push_back({name + "Window1", {.causal = true, .window = 1}, 1, 9, reversed, 12});
    out.push_back({name + "WindowWide", {.causal = true, .window = 50}, 1, 9, reversed, 12});
    out.push_back({name + "WindowBoth", {.causal = false, .window = 3}, 1, 9, reversed, 12});
    out.push_back({name + "WindowBothWide", {.causal = false, .window = 7}, 1, 9, reversed, 12});
    out.push_back({name + "Sequences", {.causal = true}, 3, 5, reversed, 12});
    out.push_back({name + "SequencesBothWindow", {.causal = false, .window = 2}, 2, 5, reversed, 12});
    out.push_back({name + "Partial", {.causal = true}, 1, 9, reversed, 4});
    out.push_back({name + "OneToken", {.causal = true}, 2, 1, reversed, 12});
  }
  return out;
}

class SightSums : public testing::TestWithParam<SightCase> {
 protected:
  static bool sees(const Attention& op, Index i, Index j) {
    return (!op.causal || j <= i) && (op.window == 0 || std::abs(i - j) < op.window);
  }
};

TEST_P(SightSums, ArePlainSums) {
  const SightCase& c = GetParam();
  Batch batch;
  batch.sequences = c.sequences;
  batch.length = c.length;
  const Index n = batch.tokens();
  const Rotary rotary{.head_dim = 12, .turned = c.turned, .base = c.base, .stretch = 1.1};
  const Turn turn(rotary, c.length);
  const Sight keys(c.op, batch, c.turned > 0 ? &turn : nullptr);
  const Sight seen = c.reversed ? keys.reversed() : keys;
  std::mt19937 bits(3);
  std::normal_distribution<double> normal;
  Matrix B(n, n), y(n, n);
  for (Index i = 0; i < n; ++i) {
    for (Index j = 0; j < n; ++j) y(i, j) = normal(bits), B(i, j) = B(j, i) = normal(bits);
  }
  const auto looks = [&](Index t, Index j) {
    const Index a = batch.position(t), b = batch.position(j);
    return t - a == j - b && (c.reversed ? sees(c.op, b, a) : sees(c.op, a, b));
  };
  const auto r = [&](Index t, Index s, Index j, Index l) {
    if (c.turned == 0) return 1.0;
    const auto p = static_cast<double>(batch.position(t) - batch.position(s) - batch.position(j) + batch.position(l));
    double sum = static_cast<double>(12 - c.turned);
    for (Index i = 0; i < c.turned / 2; ++i) sum += 2 * std::pow(1.1, 4) * std::cos(p * rotary.frequency(i));
    return sum / 12;
  };
  const Kernel both = seen.both(B), squares = seen.both(B, 2);
  const Matrix cross = seen.cross(B, y), places = seen.places(y);
  const std::vector<double> own = seen.own(B);
  for (Index t = 0; t < n; ++t) {
    double square = 0;
    for (Index j = 0; j < n; ++j) {
      for (Index l = 0; l < n; ++l) square += looks(t, j) && looks(t, l) ? B(j, l) : 0;
    }
    EXPECT_NEAR(own[static_cast<std::size_t>(t)], square, 1e-12);
    EXPECT_EQ(seen.count(t), [&] {
      double count = 0;
      for (Index j = 0; j < n; ++j) count += looks(t, j);
      return count;
    }());
    for (Index s = 0; s < n; ++s) {
      double sum = 0, squared = 0, crossed = 0, gathered = 0, product = 0;
      for (Index j = 0; j < n; ++j) {
        for (Index l = 0; l < n; ++l) {
          gathered += y(t, j) * y(s, l) * r(t, s, j, l);
          if (!looks(t, j) || !looks(s, l)) continue;
          sum += B(j, l) * r(t, s, j, l);
          squared += B(j, l) * r(t, s, j, l) * r(t, s, j, l);
          crossed += y(t, l) * B(j, l) * r(t, s, j, l);
        }
      }
      for (Index k = 0; k < places.cols(); ++k) product += places(t, k) * places(s, k);
      EXPECT_NEAR(both(t, s), sum, 1e-11) << t << " " << s;
      EXPECT_NEAR(squares(t, s), squared, 1e-11) << t << " " << s;
      EXPECT_NEAR(cross(t, s), crossed, 1e-11) << t << " " << s;
      EXPECT_NEAR(product, gathered, 1e-11) << t << " " << s;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Masks, SightSums, testing::ValuesIn(sight_cases()), [](const auto& of) { return of.param.name; });

// Pairs that hardly turn are one wave, and r is still that of all pairs.
TEST(Turn, TakesSlowPairsTogether) {
  constexpr Index length = 64;
  const Rotary rotary{.head_dim = 64, .turned = 64};
  const Turn turn(rotary, length);
  EXPECT_LT(turn.waves().size(), 25U);
  for (Index p = 0; p < 2 * length; ++p) {
    double sum = 0;
    for (Index i = 0; i < 32; ++i) sum += std::cos(static_cast<double>(p) * rotary.frequency(i)) / 32;
    EXPECT_NEAR(turn.score(p), sum, 1e-4) << p;
  }
}

}  // namespace
}  // namespace stepzero
