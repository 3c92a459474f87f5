// The rules of the optimizers: against their formulas, SIMD against the plain loops, and what Muon's two polar factors are.
#include <bit>
#include <cmath>
#include <fstream>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/optim/schedule.hpp"

namespace stepzero {
namespace {

std::vector<float> numbers(Index n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = normal(random);
  return x;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::ranges::equal(a, b, [](float x, float y) { return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y); });
}

TEST(UpdateRows, HaveTheBitsOfThePlainLoops) {
  for (const Index n : {1, 7, 16, 61, 1000}) {
    const auto w0 = numbers(n, 1), g = numbers(n, 2, 1e-3F), m0 = numbers(n, 3, 1e-3F);
    auto v0 = numbers(n, 4, 1e-6F);
    for (float& v : v0) v = std::abs(v);
    for (const bool nesterov : {false, true}) {
      const SgdNumbers<float> c{0.999F, 0.1F, 0.7F, 0.9F, nesterov};
      auto w = w0, b = m0, wr = w0, br = m0;
      sgd_row(w.data(), g.data(), b.data(), n, c);
      sgd_row<float>(wr.data(), g.data(), br.data(), n, c);
      EXPECT_TRUE(same_bits(w, wr) && same_bits(b, br)) << n;
    }
    const AdamNumbers<float> a{0.9999F, 1e-3F, 0.7F, 0.9F, 0.1F, 0.999F, 0.001F, 0.3F, 1e-8F};
    auto w = w0, m = m0, v = v0, wr = w0, mr = m0, vr = v0;
    adam_row(w.data(), g.data(), m.data(), v.data(), n, a);
    adam_row<float>(wr.data(), g.data(), mr.data(), vr.data(), n, a);
    EXPECT_TRUE(same_bits(w, wr) && same_bits(m, mr) && same_bits(v, vr)) << n;
    const LionNumbers<float> l{0.9999F, 1e-3F, 0.7F, 0.9F, 0.1F, 0.99F, 0.01F};
    w = wr = w0, m = mr = m0;
    lion_row(w.data(), g.data(), m.data(), n, l);
    lion_row<float>(wr.data(), g.data(), mr.data(), n, l);
    EXPECT_TRUE(same_bits(w, wr) && same_bits(m, mr)) << n;
  }
}

TEST(UpdateRows, LionLeavesAWeightWhoseGradientIsZero) {
  std::vector<float> w = {1, 1, 1}, m = {0, 0, 0};
  const std::vector<float> g = {0, 2, -2};
  lion_row(w.data(), g.data(), m.data(), 3, {1, 0.25F, 1, 0.9F, 0.1F, 0.99F, 0.01F});
  EXPECT_THAT(w, ::testing::ElementsAre(1, 0.75F, 1.25F));
}

Tensor<double> matrix(Index rows, Index cols, unsigned seed) {
  const auto x = numbers(rows * cols, seed);
  Tensor<double> m(rows, cols);
  std::copy(x.begin(), x.end(), m.data());
  return m;
}

// A = U V' times singular values that fall from 1 to `last`.
Tensor<double> falling(Index n, double last) {
  Tensor<double> u = matrix(n, n, 5), v = matrix(n, n, 6), a(n, n);
  kernels::orthonormalise_rows(u.view());
  kernels::orthonormalise_rows(v.view());
  for (Index k = 0; k < n; ++k) {
    const double s = std::pow(last, static_cast<double>(k) / static_cast<double>(n - 1));
    for (Index j = 0; j < n; ++j) u(k, j) *= s;
  }
  gemm<double>(Trans::yes, Trans::no, 1, u.view(), v.view(), 0, a.view());
  return a;
}

// The largest entry of Q Q' - 1.
double departure(const Tensor<double>& q) {
  Tensor<double> gram(q.rows(), q.rows());
  gemm<double>(Trans::no, Trans::yes, 1, q.view(), q.view(), 0, gram.view());
  double worst = 0;
  for (Index i = 0; i < gram.rows(); ++i) {
    for (Index j = 0; j < gram.cols(); ++j) worst = std::max(worst, std::abs(gram(i, j) - (i == j ? 1 : 0)));
  }
  return worst;
}

// G = P Q with Q orthonormal and P = G Q' symmetric and not negative: that is the polar factor and no other.
void expect_polar(View<const double> g, const Tensor<double>& q, double tolerance) {
  EXPECT_LT(departure(q), tolerance);
  Tensor<double> p(g.rows, g.rows);
  gemm<double>(Trans::no, Trans::yes, 1, g, q.view(), 0, p.view());
  for (Index i = 0; i < p.rows(); ++i) {
    EXPECT_GE(p(i, i), 0);
    for (Index j = 0; j < i; ++j) EXPECT_NEAR(p(i, j), p(j, i), tolerance * p(0, 0) + 1e-12) << i << " " << j;
  }
}

TEST(Polar, IsOrthonormalAndLeavesASymmetricFactor) {
  const Tensor<double> wide = matrix(12, 40, 7);
  expect_polar(wide.view(), polar_factor<double>(wide.view()), 1e-12);
  const Tensor<double> sharp = falling(24, 1e-5);
  expect_polar(sharp.view(), polar_factor<double>(sharp.view()), 1e-7);
}

TEST(Polar, OfATallMatrixIsThatOfTheLyingOneTurned) {
  const Tensor<double> wide = matrix(6, 9, 8);
  Tensor<double> tall(9, 6);
  for (Index i = 0; i < 6; ++i) {
    for (Index j = 0; j < 9; ++j) tall(j, i) = wide(i, j);
  }
  const auto a = polar_factor<double>(wide.view()), b = polar_factor<double>(tall.view());
  for (Index i = 0; i < 6; ++i) {
    for (Index j = 0; j < 9; ++j) EXPECT_NEAR(a(i, j), b(j, i), 1e-13);
  }
}

TEST(Polar, DropsWhatIsRoundingNoise) {
  Tensor<double> a = matrix(3, 20, 9), b = matrix(16, 3, 10), g(16, 20);
  gemm<double>(Trans::no, Trans::no, 1, b.view(), a.view(), 0, g.view());
  const auto noise = numbers(16 * 20, 11, 1e-8F);
  for (Index i = 0; i < g.size(); ++i) g.data()[i] += static_cast<double>(noise[static_cast<std::size_t>(i)]);
  const auto q = polar_factor<double>(g.view());
  double squares = 0;
  for (Index i = 0; i < q.size(); ++i) squares += q.data()[i] * q.data()[i];
  EXPECT_NEAR(squares, 3, 1e-9);  // three singular values of 1
}

TEST(Polar, OfNothingIsNothingAndABrokenNumberIsSeen) {
  Tensor<double> g(2, 3);
  std::fill_n(g.data(), 6, 0.0);
  const auto zero = polar_factor<double>(g.view());
  EXPECT_TRUE(std::all_of(zero.data(), zero.data() + 6, [](double x) { return x == 0; }));
  g(1, 1) = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isnan(polar_factor<double>(g.view())(0, 0)));
}

TEST(Polar, FiveNewtonSchulzStepsBringSingularValuesNearOne) {
  const Tensor<double> g = falling(32, 1e-2);
  const auto q = newton_schulz_factor<double>(g.view(), 5);
  const kernels::Svd svd = [&] {
    Tensor<float> narrow(32, 32);
    std::transform(q.data(), q.data() + q.size(), narrow.data(), [](double x) { return static_cast<float>(x); });
    return kernels::svd(narrow.view());
  }();
  for (const float s : svd.s) {
    EXPECT_GT(s, 0.65F);
    EXPECT_LT(s, 1.25F);
  }
  // one number: the polynomial itself, five times
  Tensor<double> one(1, 1);
  one(0, 0) = 3;
  double x = 3 / (3 + 1e-7);
  for (int k = 0; k < 5; ++k) x = 3.4445 * x - 4.7750 * x * x * x + 2.0315 * x * x * x * x * x;
  EXPECT_NEAR(newton_schulz_factor<double>(one.view(), 5)(0, 0), x, 1e-12);
}

TEST(Polar, HasTheSameBitsForAnyNumberOfThreads) {
  const auto x = numbers(96 * 200, 12);
  const View<const float> g(x.data(), 96, 200);
  const auto bits = [&](int n) {
    set_threads(n);
    std::vector<float> all;
    for (const Tensor<float>& q : {polar_factor(g), newton_schulz_factor(g, 5)}) all.insert(all.end(), q.data(), q.data() + q.size());
    set_threads(0);
    return all;
  };
  EXPECT_TRUE(same_bits(bits(1), bits(2)));
}

TEST(Muon, ScalesAreThoseOfTheirPapers) {
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::max1, 64, 256), 2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::max1, 256, 64), 1);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::kimi, 64, 256), 3.2);
  EXPECT_DOUBLE_EQ(muon_scale(MuonScale::spectral, 256, 64), 0.5);
}

Graph three_tensors() {
  Graph graph;
  graph.add_param({"table", {11, 4}, Role::token_embedding});
  graph.add_param({"blocks.0.in.weight", {8, 4}, Role::ffn_in, 0, 4, 8});
  graph.add_param({"blocks.0.in.bias", {8}, Role::bias, 0});
  return graph;
}

TEST(Optimizers, MuonLeavesTablesAndVectorsToAdamW) {
  const Graph graph = three_tensors();
  const Optimizer<float> muon(graph, settled({.name = "muon", .rate = 0.5, .rate_adamw = 0.25}).value());
  EXPECT_TRUE(std::holds_alternative<AdamW>(muon.rule(0)));
  EXPECT_TRUE(std::holds_alternative<Muon>(muon.rule(1)));
  EXPECT_DOUBLE_EQ(std::get<Muon>(muon.rule(1)).scale, std::sqrt(2.0));
  EXPECT_TRUE(std::holds_alternative<AdamW>(muon.rule(2)));
  EXPECT_EQ(muon.rate(0).rate, 0.25);
  EXPECT_EQ(muon.rate(1).rate, 0.5);
}

TEST(Optimizers, SettleWhatIsNotToldAndRefuseWhatCannotBe) {
  EXPECT_EQ(*settled({.name = "lion"})->beta2, 0.99);
  EXPECT_EQ(*settled({.name = "adamw"})->beta2, 0.999);
  EXPECT_EQ(*settled({.name = "muon"})->momentum, 0.95);
  for (const OptimizerOptions& wrong :
       {OptimizerOptions{.name = "adam"}, OptimizerOptions{.rate = std::nan("")}, OptimizerOptions{.rate = -1},
        OptimizerOptions{.beta1 = 1}, OptimizerOptions{.clip = -1}, OptimizerOptions{.rate = std::numeric_limits<double>::infinity()}}) {
    const auto done = settled(wrong);
    ASSERT_FALSE(done);
    EXPECT_FALSE(done.error().message.empty());
  }
}

class Rates : public ::testing::Test {
 protected:
  Expected<RateTable> read(const std::string& text) {
    const std::string path = ::testing::TempDir() + "rates.json";
    std::ofstream(path) << text;
    return read_rates(path, graph_.params);
  }
  Graph graph_ = three_tensors();
};

TEST_F(Rates, ComeOneAfterTheOther) {
  const auto table = read(R"({"schema": "stepzero.rates/1", "rates": [
    {"tensor": "*.weight", "times": 0.5}, {"layer": 0, "times": 0.5, "decay": 0}, {"role": "token_embedding", "rate": 3, "eps": 1e-12}]})");
  ASSERT_TRUE(table) << table.error().message;
  const TensorRate base{.rate = 1, .decay = 0.1, .eps = 1e-8};
  const auto of = [&](std::size_t i) { return table->apply(graph_.params[i], base); };
  EXPECT_EQ(of(0).rate, 3);
  EXPECT_EQ(of(0).eps, 1e-12);
  EXPECT_EQ(of(0).decay, 0.1);
  EXPECT_EQ(of(1).rate, 0.25);
  EXPECT_EQ(of(1).decay, 0);
  EXPECT_EQ(of(2).rate, 0.5);
}

TEST_F(Rates, RefuseWhatTheyCannotMean) {
  for (const char* text :
       {"[]", R"({"schema": "stepzero.rates/1"})", R"({"rates": [{"times": 1}]})",
        R"({"schema": "stepzero.rates/1", "rates": [{"tensor": "nowhere", "times": 1}]})",
        R"({"schema": "stepzero.rates/1", "rates": [{"role": "cook", "times": 1}]})",
        R"({"schema": "stepzero.rates/1", "rates": [{"layer": 0}]})", R"({"schema": "stepzero.rates/1", "rates": [{"rate": -1}]})",
        R"({"schema": "stepzero.rates/1", "rates": [{"rate": "fast"}]})", R"({"schema": "stepzero.rates/1", "rates": [{"speed": 1}]})"}) {
    const auto table = read(text);
    ASSERT_FALSE(table) << text;
    EXPECT_THAT(table.error().message, ::testing::HasSubstr("rates.json"));
  }
}

TEST(Schedules, RiseAndFall) {
  const Schedule cosine{.shape = Shape::cosine, .warmup = 10, .steps = 110, .end = 0.1};
  EXPECT_DOUBLE_EQ(cosine.share(0), 0.1);
  EXPECT_DOUBLE_EQ(cosine.share(9), 1);
  EXPECT_DOUBLE_EQ(cosine.share(10), 1);
  EXPECT_DOUBLE_EQ(cosine.share(60), 0.55);
  EXPECT_DOUBLE_EQ(cosine.share(110), 0.1);
  EXPECT_DOUBLE_EQ(cosine.share(500), 0.1);
  const Schedule line{.shape = Shape::linear, .warmup = 0, .steps = 4, .end = 0};
  EXPECT_DOUBLE_EQ(line.share(1), 0.75);
  EXPECT_DOUBLE_EQ(Schedule{}.share(1000), 1);
}

}  // namespace
}  // namespace stepzero
