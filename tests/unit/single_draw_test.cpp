// Kernels of single draws: they have the mean and the variance that a model's have, and gradients that lean on them are those of
// models whose draws differ much.
#include "stepzero/ops/single_draw.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/running.hpp"
#include "stepzero/kernels/decompose.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/ops/all.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/theory/predict.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

constexpr Index tokens = 3;

Kernel kernel(double a, double b, double c, double ab, double ac, double bc) {
  const double entries[tokens][tokens] = {{a, ab, ac}, {ab, b, bc}, {ac, bc, c}};
  return Kernel::from(tokens, [&](Index t, Index s) { return entries[t][s]; });
}
const Kernel& one() {
  static const Kernel K = kernel(1, 2, 0.5, 0.7, -0.2, 0.3);
  return K;
}
const Kernel& other() {
  static const Kernel K = kernel(0.8, 1.5, 3, -0.4, 0.9, 1.1);
  return K;
}

// Every entry of draw(i) has this mean and this variance: |z| < 6 with a standard error below a quarter of a per cent of the size.
template <class Draw, class Mean, class Variance>
void expect_law(Index draws, const Draw& draw, const Mean& mean, const Variance& variance) {
  Running at[tokens][tokens], pairs[tokens][tokens], squares[tokens][tokens];
  for (Index i = 0; i < draws; i += 2) {
    const Kernel first = draw(i), second = draw(i + 1);
    for (Index t = 0; t < tokens; ++t) {
      for (Index s = 0; s <= t; ++s) {
        pairs[t][s].add((first(t, s) + second(t, s)) / 2);
        for (const double x : {first(t, s), second(t, s)}) {
          at[t][s].add(x);
          squares[t][s].add(std::pow(x - mean(t, s), 2));
        }
      }
    }
  }
  for (Index t = 0; t < tokens; ++t) {
    for (Index s = 0; s <= t; ++s) {
      const double size = std::sqrt(mean(t, t) * mean(s, s));
      EXPECT_LT(pairs[t][s].error(), 0.0025 * size) << t << "," << s;
      EXPECT_LE(std::abs(pairs[t][s].mean - mean(t, s)), 6 * pairs[t][s].error()) << t << "," << s << ": " << pairs[t][s].mean;
      const double want = variance(t, s);
      // opposite draws may have the same square: half as many tell
      const double error = std::sqrt(2.0) * squares[t][s].error();
      EXPECT_LT(error, 0.01 * want) << t << "," << s;
      EXPECT_LE(std::abs(squares[t][s].mean - want), 6 * error) << t << "," << s << ": " << squares[t][s].mean << ", want " << want;
    }
  }
}

TEST(SingleDraw, GramOfChannelsIsWishart) {
  constexpr Index channels = 40;
  const auto mean = [](Index t, Index s) { return one()(t, s); };
  expect_law(
      200000, [](Index i) { return gram_of_channels(one(), channels, {.place = 5, .single = i}); }, mean,
      [&](Index t, Index s) { return (mean(t, t) * mean(s, s) + mean(t, s) * mean(t, s)) / channels; });
}

TEST(SingleDraw, FewChannelsLikewise) {
  const Kernel K = gram_of_channels(one(), 2, {.place = 5, .single = 3});
  // rank 2: the determinant is 0
  const double det = K(0, 0) * (K(1, 1) * K(2, 2) - K(1, 2) * K(1, 2)) - K(0, 1) * (K(0, 1) * K(2, 2) - K(1, 2) * K(0, 2)) +
                     K(0, 2) * (K(0, 1) * K(1, 2) - K(1, 1) * K(0, 2));
  EXPECT_NEAR(det, 0, 1e-6 * K(0, 0) * K(1, 1) * K(2, 2));
}

TEST(SingleDraw, SumsPointAnywhere) {
  constexpr Index channels = 12;
  const double a = 1.5, b = 0.7;
  const auto x = [&](Index t, Index s) { return a * a * one()(t, s); };
  const auto f = [&](Index t, Index s) { return b * b * other()(t, s); };
  expect_law(
      200000, [&](Index i) { return gram_of_sum(one(), other(), a, b, channels, {.place = 6, .single = i}); },
      [&](Index t, Index s) { return x(t, s) + f(t, s); },
      [&](Index t, Index s) { return (x(t, t) * f(s, s) + x(s, s) * f(t, t) + 2 * x(t, s) * f(t, s)) / channels; });
}

// Tokens that are nearly one stay so, and the sum is a Gram matrix: 12 nearly equal tokens, in half as many channels too few for floats.
TEST(SingleDraw, NearlyEqualTokensKeepWhatTellsThemApart) {
  constexpr Index n = 12;
  constexpr double apart = 1e-9;
  const Kernel K = Kernel::from(n, [](Index t, Index s) { return t == s ? 1.0 : 1 - apart; });
  Running spread;
  for (Index i = 0; i < 400; ++i) {
    const Kernel y = gram_of_sum(K, K, 1, 1, 64, {.place = 7, .single = i});
    for (Index t = 1; t < n; ++t) spread.add(y(t, t) + y(0, 0) - 2 * y(t, 0));
    for (Index t = 0; t < n; ++t) ASSERT_GT(y(t, t), 0);
  }
  EXPECT_NEAR(spread.mean, 4 * apart, 0.1 * apart + 6 * spread.error());
}

// Real heads, drawn and differentiated, against the doors of single draws: what reaches q, k and v in the mean.
TEST(SingleDraw, AttentionIsThatOfRealHeads) {
  constexpr Index draws = 4000, dim = 6;
  const Attention op{.heads = 2, .kv_heads = 1, .key_dim = dim, .value_dim = dim, .scale = 0.3};
  Batch batch;
  batch.length = tokens;
  batch.ids.assign(tokens, 0);
  DownWire x;
  x.K = kernel(1, 1, 1, 0.6, 0.3, 0.5);
  x.f.settle();
  const DownWire* const inputs[] = {&x, &x, &x};
  const Kernel& G = other();
  Running theory[4], real[4];
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  const Tensor<float> root = kernels::root(x.K, 1), up = kernels::root(G, 1);
  const auto fill = [&](const Tensor<float>& u, Index columns, double size) {
    Tensor<double> out(tokens, columns);
    for (Index c = 0; c < columns; ++c) {
      double z[tokens];
      for (double& e : z) e = normal(random);
      for (Index t = 0; t < tokens; ++t) {
        out(t, c) = 0;
        for (Index s = 0; s <= t; ++s) out(t, c) += size * static_cast<double>(u(s, t)) * z[s];
      }
    }
    return out;
  };
  const auto squares = [](const Tensor<double>& m) {
    double sum = 0;
    for (Index i = 0; i < m.size(); ++i) sum += m.data()[i] * m.data()[i];
    return sum;
  };
  for (Index i = 0; i < draws; ++i) {
    const Draws which{.place = 9, .single = i};
    const DownWire y = push_finite(op, PushDoor{batch, inputs, {}, which});
    const Pulled pulled = pull_finite(op, PullDoor{batch, inputs, {}, y, UpWire(G), which});
    theory[0].add(y.K.trace());
    for (std::size_t k = 0; k < 3; ++k) theory[k + 1].add(pulled.dx[k].G.trace());

    const Tensor<double> q = fill(root, 2 * dim, 1), k = fill(root, dim, 1), v = fill(root, dim, 1);
    Tensor<double> out(tokens, 2 * dim), keep(tokens, op.keep()), dq(tokens, 2 * dim), dk(tokens, dim), dv(tokens, dim);
    const View<const double> in[] = {q.view(), k.view(), v.view()};
    op.forward(Down<double>{batch, in, {}, out.view(), keep.view()});
    const Tensor<double> dy = fill(up, 2 * dim, 1 / std::sqrt(2.0 * dim));
    const Into<double> into[] = {{dq.view()}, {dk.view()}, {dv.view()}};
    op.backward(Up<double>{batch, in, {}, out.view(), keep.view(), dy.view(), into, {}});
    real[0].add(squares(out) / (2 * dim));
    real[1].add(squares(dq));
    real[2].add(squares(dk));
    real[3].add(squares(dv));
  }
  for (int i = 0; i < 4; ++i) {
    const double error = std::hypot(theory[i].error(), real[i].error());
    EXPECT_LT(error, 0.025 * real[i].mean) << i;
    EXPECT_LE(std::abs(theory[i].mean - real[i].mean), 5 * error) << i << ": " << theory[i].mean << ", seen " << real[i].mean;
    if (i > 0) {  // the mean over gradients is known
      EXPECT_LT(theory[i].variance(), 0.9 * real[i].variance()) << i;
    }
  }
}

struct Errors {
  double mean = 0, noise = 0;  // of queries and keys, relative
};
Errors errors(const Signal& predicted, const Signal& measured) {
  Errors out;
  double count = 0;
  for (std::size_t i = 0; i < measured.nodes.size(); ++i) {
    const std::string& name = measured.nodes[i].name;
    if (!name.ends_with(".q") && !name.ends_with(".k")) continue;
    const Value &p = predicted.nodes[i].backward.second_moment, &m = measured.nodes[i].backward.second_moment;
    out.mean += *p.predicted / *m.measured - 1;
    out.noise += *m.standard_error / *m.measured;
    ++count;
  }
  return {out.mean / count, out.noise / count};
}

TEST(SingleDraw, GradientsOfNarrowModelsLeanOnDraws) {
  const SmallModel s = small_model("llama-2-7b",
                                   {"layers=8", "width=256", "heads=4", "kv_heads=4", "ffn=256", "vocab=100", "rotary=0",
                                    "position=learned", "norm=layernorm", "gated=false", "activation=gelu_tanh"},
                                   "zipf", 16);
  const Scheme& scheme = **find_scheme("xavier-normal");
  MeasureOptions options;
  options.scheme = &scheme;
  options.weightless = true;
  options.seeds = 1000;
  const Signal measured = measure(s.graph, s.a, s.batch, options).value();
  const Signal rules = predict(s.graph, s.a, s.batch, scheme, {.order = Order::fluctuations}),
               draws = predict(s.graph, s.a, s.batch, scheme, {});
  EXPECT_EQ(rules.kernel_draws, 0);
  EXPECT_GE(draws.kernel_draws, 64);
  const Errors by_rules = errors(rules, measured), by_draws = errors(draws, measured);
  EXPECT_LT(std::abs(by_draws.mean), 0.04) << "rules alone: " << by_rules.mean;
  EXPECT_LT(std::abs(by_draws.mean), std::abs(by_rules.mean) / 2) << by_rules.mean;
}

TEST(SingleDraw, TheSameNumbersOnAnyNumberOfThreads) {
  const SmallModel s = small_model("llama-2-7b", {"layers=2", "width=64", "heads=2", "kv_heads=1", "ffn=96", "vocab=100"}, "zipf", 8);
  const Scheme& scheme = **find_scheme("hf");
  const auto on = [&](int n) {
    set_threads(n);
    Signal signal = predict(s.graph, s.a, s.batch, scheme, {});
    set_threads(0);
    EXPECT_GT(signal.kernel_draws, 0);
    return to_json(signal);
  };
  EXPECT_EQ(on(1), on(3));
}

TEST(SingleDraw, WhatIsNotDrawnIsLeftToTheRules) {
  const Scheme& orthogonal = **find_scheme("orthogonal");
  const SmallModel s = small_model("llama-2-7b", {"layers=2", "width=64", "heads=2", "kv_heads=2", "ffn=96", "vocab=100"}, "zipf", 8);
  EXPECT_EQ(predict(s.graph, s.a, s.batch, orthogonal, {}).kernel_draws, 0);
  const SmallModel experts =
      small_model("mixtral-8x7b", {"layers=1", "width=32", "heads=2", "kv_heads=1", "ffn=48", "vocab=50"}, "zipf", 4);
  EXPECT_EQ(predict(experts.graph, experts.a, experts.batch, **find_scheme("hf"), {}).kernel_draws, 0);
  // logits of which single ones decide, and many of them: drawn anew for every draw they take too long
  const SmallModel sharp = small_model(
      "llama-2-7b", {"layers=1", "width=64", "heads=2", "kv_heads=2", "ffn=96", "vocab=32000", "tied=false", "init_std=1"}, "zipf", 16);
  EXPECT_EQ(predict(sharp.graph, sharp.a, sharp.batch, **find_scheme("hf"), {}).kernel_draws, 0);
}

}  // namespace
}  // namespace stepzero
