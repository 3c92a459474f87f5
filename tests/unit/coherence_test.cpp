// Sums whose wires share sources: the expansion by hand, and whole models against measurement.
#include "stepzero/theory/coherence.hpp"

#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/stepzero.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

Kernel kernel(double own, double other) {
  return Kernel::from(3, [=](Index t, Index s) { return t == s ? own : other; });
}

TEST(Coherence, AWireAddedToItselfHasFourTimesTheSquare) {
  Expansions x(2);
  const Kernel K = kernel(2, 0.5);
  x.complete(0, K);
  const Kernel both = x.cross(x.of(0), x.of(0));
  for (Index t = 0; t < 3; ++t) {
    for (Index s = 0; s < 3; ++s) EXPECT_DOUBLE_EQ(2 * K(t, s) + both(t, s), 4 * K(t, s));
  }
}

TEST(Coherence, OnlyWhatIsSharedMeets) {
  Expansions x(4);
  const Kernel a = kernel(2, 0.5), b = kernel(1, -0.2);
  x.complete(0, a);
  x.complete(1, b);
  EXPECT_TRUE(x.cross(x.of(0), x.of(1)).empty());
  x.add(2, x.of(0));
  x.add(2, x.of(1));
  const Kernel met = x.cross(x.of(2), x.of(0));
  EXPECT_DOUBLE_EQ(met(1, 0), 2 * a(1, 0));
  // a source of its own for what is beyond the sum, and none where there is nothing
  x.complete(2, a + b);
  EXPECT_EQ(x.of(2).size(), 2U);
  x.add(3, x.of(0));
  x.complete(3, a + b);
  EXPECT_EQ(x.of(3).size(), 2U);
  EXPECT_NEAR(x.cross(x.of(3), x.of(3))(2, 2), 2 * (a + b)(2, 2), 1e-12);
}

TEST(Coherence, NormsChangeTheNumbersOfTokens) {
  Expansions x(1);
  const Kernel K = Kernel::from(2, [](Index t, Index s) { return t == s ? (t == 0 ? 4 : 9) : 1; });
  const Kernel normed = Kernel::from(2, [](Index t, Index s) { return t == s ? 1 : 1.0 / 6; });
  x.complete(0, K);
  const auto y = Expansions::times(x.of(0), {.linear = true, .by_token = true}, K, normed);
  EXPECT_NEAR(x.cross(y, y)(0, 1), 2 * normed(0, 1), 1e-12);
  EXPECT_NEAR(x.cross(y, x.of(0))(1, 1), 2 * 3, 1e-12);
}

// Blocks of attention-free branches keep the test short; the kernels of attention are not what is in question.
std::string model(const std::string& before, const std::string& block, const std::string& behind = "") {
  return "arch(\"shares\", width=128, layers=6, vocab=300, positions=64, init_std=0.1)\n"
         "def branch_of(x, name):\n"
         "    h = gelu(linear(rms_norm(x, name=name + \"n\"), 4 * width, name=name + \"u\", role=\"ffn_in\"))\n"
         "    return linear(h, width, name=name + \"d\", role=\"ffn_out\")\n"
         "x = tokens(vocab, width, name=\"embed\", init=normal(1.0))\nstream(x)\n" +
         before + "for l in range(layers):\n    p = f\"b{l}.\"\n" + block + "    stream(x)\n" + behind +
         "loss(head(rms_norm(x, name=\"n\"), vocab, name=\"head\"))\n";
}

struct Sharing {
  const char* name;
  std::string text;
};

std::vector<Sharing> sharing() {
  const std::string hyper =
      "    m = sum(s)\n    y = branch_of(m, p)\n"
      "    s = [scalar(0.8, name=f\"{p}a{i}\") * s[i] + scalar(0.2, name=f\"{p}b{i}\") * s[(i + 1) % 3] + y for i in range(3)]\n"
      "    x = s[0]\n";
  return {{"u-net", model("kept = []\n",
                          "    if l >= 3:\n        x = x + scalar(0.7, name=p + \"s\") * kept.pop()\n    x = x + branch_of(x, p)\n"
                          "    if l < 3:\n        kept.append(x)\n")},
          {"embedding", model("x0 = x\n", "    x = 0.5 * x + 0.5 * x0\n    x = x + branch_of(x, p)\n")},
          {"itself", model("", "    x = x + rms_norm(x, name=p + \"o\")\n    x = x + branch_of(x, p)\n")},
          {"hyper", model("s = [x, x, x]\n", hyper, "x = sum(s)\n")}};
}

// Every node, within 3 % and four standard errors forward, 5 % and four standard errors back. As if wires were uncorrelated, the same
// nodes are off by 20 to 60 %.
TEST(Coherence, WholeModelsAreAsMeasured) {
  const testing::Scratch scratch;
  for (const Sharing& c : sharing()) {
    const auto m = Model::load({.model = scratch.put(std::string(c.name) + ".py", c.text)});
    ASSERT_TRUE(m) << c.name << " " << m.error().message;
    const auto both = m->compare({.input = {.length = 12}, .seeds = 24});
    ASSERT_TRUE(both) << c.name << " " << both.error().message;
    std::size_t seen = 0;
    const auto check = [&](const Value& value, double share, const std::string& where) {
      if (!value.measured || !value.predicted || *value.measured == 0) return;
      ++seen;
      const double off = *value.predicted / *value.measured - 1, error = value.standard_error.value_or(0) / *value.measured;
      EXPECT_TRUE(std::abs(off) <= share + 4 * error) << fmt::format("{} {}: {:+.1f} % (+- {:.1f})", c.name, where, 100 * off, 100 * error);
    };
    for (const NodeSignal& n : both->nodes) {
      check(n.forward.second_moment, 0.03, n.name);
      check(n.backward.norm, 0.05, n.name + ", gradient");
    }
    EXPECT_GT(seen, 50U) << c.name;
    for (const ParameterSignal& p : both->parameters) {
      const bool scalar = p.shape == std::vector<Index>{1};
      EXPECT_EQ(p.gradient_norm.predicted.has_value(), !scalar) << p.name;
    }
  }
}

}  // namespace
}  // namespace stepzero
