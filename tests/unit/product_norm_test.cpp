// Norms of products that nobody makes, and passes that know the gradients of their matrices by them.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/product/gemm.hpp"
#include "stepzero/kernels/product/product_norm.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/pass/pass_plan.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/describe.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

constexpr double float_eps = std::numeric_limits<float>::epsilon();

// Rows that are `common` times the same one plus noise; with `balanced` the rows sum to 0, as gradients of keys do.
Tensor<float> rows_alike(Index tokens, Index n, double common, bool balanced, double scale, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Tensor<double> x(tokens, n);
  for (Index c = 0; c < n; ++c) {
    const double shared = common * normal(random);
    double sum = 0;
    for (Index t = 0; t < tokens; ++t) sum += x(t, c) = shared + normal(random);
    for (Index t = 0; balanced && t < tokens; ++t) x(t, c) -= sum / static_cast<double>(tokens);
  }
  Tensor<float> out(tokens, n);
  for (Index i = 0; i < x.size(); ++i) out.data()[i] = static_cast<float>(scale * x.data()[i]);
  return out;
}

// ||X' D||^2 by the product itself, in double, without the columns of D in `skip`.
double squares_of_product(const Tensor<float>& x, const Tensor<float>& d, const std::vector<Index>& skip = {}) {
  Tensor<double> a(x.rows(), x.cols()), b(d.rows(), d.cols()), c(x.cols(), d.cols());
  std::copy_n(x.data(), x.size(), a.data());
  std::copy_n(d.data(), d.size(), b.data());
  for (const Index column : skip) {
    for (Index t = 0; t < b.rows(); ++t) b(t, column) = 0;
  }
  gemm(Trans::yes, Trans::no, 1.0, View<const double>(a), View<const double>(b), 0.0, c.view());
  double sum = 0;
  for (Index i = 0; i < c.size(); ++i) sum += c.data()[i] * c.data()[i];
  return sum;
}

double squares(const Tensor<float>& x, const Tensor<float>& d, const std::vector<Index>& skip = {}) {
  return product_squares(centred_rows(View<const float>(x)), centred_rows(View<const float>(d), skip));
}

TEST(ProductNorm, IsThatOfTheProduct) {
  struct Case {
    double common;
    bool balanced;
    double x_scale, d_scale;
  };
  // tokens alike up to an angle of 1e-3, gradients that cancel over them; numbers whose squares are no floats
  for (const Case& c : {Case{0, false, 1, 1}, Case{3, false, 1, 1e-4}, Case{1000, true, 1, 1}, Case{1000, false, 1, 1},
                        Case{30, true, 1e25, 1e-25}, Case{1, false, 1e-30, 1e-30}, Case{1, false, 1e30, 1e-3}}) {
    for (const auto& [tokens, n, m] : {std::tuple<Index, Index, Index>{1, 5, 7}, {7, 33, 1100}, {97, 700, 300}, {130, 1030, 2500}}) {
      const Tensor<float> x = rows_alike(tokens, n, c.common, false, c.x_scale, 1);
      const Tensor<float> d = rows_alike(tokens, m, c.balanced ? 0 : c.common, c.balanced, c.d_scale, 2);
      const std::vector<Index> skip = {0, 3, m - 1};
      for (const auto& without : {std::vector<Index>(), skip}) {
        if (c.balanced && tokens == 1) continue;  // one row that sums to 0 is 0
        const double want = squares_of_product(x, d, without), got = squares(x, d, without);
        // numbers of size `common` stand in floats, so what is left without it has lost as much
        const double bound = 64 * float_eps * (c.balanced ? std::max(1.0, 0.05 * c.common) : 1);
        EXPECT_LE(std::abs(got - want), bound * want)
            << c.common << " " << c.balanced << " " << c.x_scale << " " << tokens << " " << got << " " << want;
      }
    }
  }
}

TEST(ProductNorm, OfWhatIsNotFiniteIsNot) {
  Tensor<float> x = rows_alike(20, 40, 1, false, 1, 1);
  const Tensor<float> d = rows_alike(20, 50, 1, false, 1, 2);
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    x(3, 4) = bad;
    EXPECT_FALSE(std::isfinite(squares(x, d)));
  }
  const Tensor<float> zero = rows_alike(20, 50, 1, false, 0, 2);
  EXPECT_EQ(squares(d, zero), 0.0);
}

TEST(ProductNorm, BitsDoNotDependOnThreads) {
  const int before = threads();
  const Tensor<float> x = rows_alike(120, 900, 1, false, 1, 1), d = rows_alike(120, 3000, 1, false, 1, 2);
  set_threads(1);
  const double one = squares(x, d);
  for (const int n : {2, 3, 5}) {
    set_threads(n);
    EXPECT_EQ(squares(x, d), one) << n;
  }
  set_threads(before);
}

struct NormCase {
  std::string preset;
  std::vector<std::string> set;
  Index sequences, length;
};

// Tied and not, a tensor in thirds and one in heads, an encoder that shares the table, padding.
const std::vector<NormCase> norm_cases = {{"gpt2", {}, 2, 9},        {"llama-2-7b", {"kv_heads=2"}, 1, 20},
                                          {"pythia-70m", {}, 1, 17}, {"bert-base", {}, 2, 8},
                                          {"t5-small", {}, 1, 12},   {"mixtral-8x7b", {"kv_heads=2"}, 1, 12}};

SmallModel model_of(const NormCase& c) {
  std::vector<std::string> set = {"layers=2", "width=64", "heads=4", "head_dim=16", "ffn=96", "vocab=151"};
  set.insert(set.end(), c.set.begin(), c.set.end());
  SmallModel m = small_model(c.preset, set, "zipf", c.length, c.sequences);
  for (Index t = 0; m.a.family == "t5" && t < m.batch.tokens(); ++t) m.batch.encoder_ids.push_back(static_cast<std::int32_t>(t * 7 % 23));
  return m;
}

template <class S>
Signal measured(const SmallModel& m, const PassOptions& options) {
  Pass<S> pass(m.graph, m.batch, options);
  const Assignment laws = distributions_of(m.graph, m.a, *find_scheme("torch-default").value());
  const WeightMaker make = drawn_weights(m.graph, laws, 3);
  for (std::size_t i = 0; i < m.graph.params.size(); ++i) {
    const View<S> w = pass.weight(static_cast<int>(i));
    Tensor<float> drawn(w.rows, w.cols);
    EXPECT_TRUE(make(i, drawn.view()));
    for (Index r = 0; r < w.rows; ++r) std::copy_n(drawn.view().row(r), w.cols, w.row(r));
  }
  Signal signal = describe(m.graph, m.a, m.batch);
  measure_pass(pass, m.graph, m.batch, signal);
  Signal again = describe(m.graph, m.a, m.batch);
  measure_pass(pass, m.graph, m.batch, again);  // a second pass finds nothing of the first
  EXPECT_EQ(to_json(again), to_json(signal));
  return signal;
}

TEST(Norms, OfGradientsNotMadeAreThoseOfGradientsMade) {
  constexpr double eps = std::numeric_limits<double>::epsilon();
  for (const NormCase& c : norm_cases) {
    const SmallModel m = model_of(c);
    const PassOptions options{.norms = true};
    const auto plan = plan_gradients(m.graph, m.batch, options, plan_head(m.graph, m.batch, options));
    Index not_made = 0, shared = 0;
    for (const GradientPlan& gradient : plan) {
      not_made += gradient.whole ? 0 : 1;
      shared += gradient.rows.empty() ? 0 : 1;
    }
    EXPECT_GE(not_made, 2 * m.a.layers) << c.preset;
    EXPECT_EQ(shared, m.a.tied ? 1 : 0) << c.preset;
    const Signal made = measured<double>(m, {}), norms = measured<double>(m, options);
    for (std::size_t i = 0; i < made.parameters.size(); ++i) {
      const double want = *made.parameters[i].gradient_norm.measured, got = *norms.parameters[i].gradient_norm.measured;
      // a bias of keys has none but rounding
      EXPECT_LE(std::abs(got - want), 1024 * eps * std::max(want, *made.gradient_norm.measured))
          << c.preset << " " << made.parameters[i].name;
      EXPECT_TRUE(!plan[i].whole || got == want) << c.preset << " " << made.parameters[i].name;
    }
    EXPECT_NEAR(*norms.gradient_norm.measured, *made.gradient_norm.measured, 1024 * eps * *made.gradient_norm.measured) << c.preset;
  }
}

TEST(Norms, AHeadInPiecesIsMade) {
  const SmallModel m = small_model("gpt2", {"layers=1", "width=96", "heads=4", "ffn=96", "vocab=151"}, "zipf", 40);
  const int table = m.graph.nodes[0].params[0].param;
  for (const Index rows : {Index{0}, Index{16}}) {
    const PassOptions options{.head_rows = rows, .norms = true};
    const auto plan = plan_gradients(m.graph, m.batch, options, plan_head(m.graph, m.batch, options));
    EXPECT_EQ(plan[static_cast<std::size_t>(table)].whole, rows > 0);
  }
}

TEST(Norms, NeedLessMemory) {
  const SmallModel m = small_model("gpt2", {"layers=1", "width=96", "heads=4", "ffn=96", "vocab=20000"}, "zipf", 16);
  EXPECT_LT(Pass<float>::memory_needed(m.graph, m.batch, {.norms = true}), Pass<float>::memory_needed(m.graph, m.batch) - 4.0 * 96 * 19000);
}

TEST(Norms, OfAStreamedPassAreTheSameBits) {
  const int before = threads();
  for (const NormCase& c : norm_cases) {
    const SmallModel m = model_of(c);
    MeasureOptions options{.scheme = find_scheme("torch-default").value(), .seed = 5, .seeds = 2};
    const auto whole = measure(m.graph, m.a, m.batch, options);
    ASSERT_TRUE(whole);
    options.stream = true;
    for (const int n : {1, 2, 3}) {
      set_threads(n);
      const auto streamed = measure(m.graph, m.a, m.batch, options);
      ASSERT_TRUE(streamed);
      EXPECT_EQ(to_json(*streamed), to_json(*whole)) << c.preset << " " << n;
    }
    set_threads(before);
  }
}

}  // namespace
}  // namespace stepzero
