// Attention against four plain loops in double: every mask, every sharing of heads, lengths around the block of 64 queries.
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "stepzero/ops/attention.hpp"

namespace stepzero {
namespace {

struct Case {
  std::string name;
  Attention op;
};

std::vector<Case> cases() {
  return {
      {"causal", {.heads = 2, .kv_heads = 2, .key_dim = 5, .value_dim = 3, .scale = 0.6}},
      {"bidirectional", {.heads = 2, .kv_heads = 2, .key_dim = 5, .value_dim = 3, .scale = 0.6, .causal = false}},
      {"window-1", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .window = 1}},
      {"window-7", {.heads = 2, .kv_heads = 2, .key_dim = 4, .value_dim = 4, .scale = 0.5, .window = 7}},
      {"window-64", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .window = 64}},
      {"window-70", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .window = 70}},
      {"window-1000", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .window = 1000}},
      {"window-both-1", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .causal = false, .window = 1}},
      {"window-both-9", {.heads = 2, .kv_heads = 2, .key_dim = 4, .value_dim = 4, .scale = 0.5, .causal = false, .window = 9}},
      {"window-both-66", {.heads = 1, .kv_heads = 1, .key_dim = 4, .value_dim = 4, .scale = 0.5, .causal = false, .window = 66}},
      {"gqa", {.heads = 6, .kv_heads = 2, .key_dim = 3, .value_dim = 4, .scale = 0.7}},
      {"mqa", {.heads = 4, .kv_heads = 1, .key_dim = 3, .value_dim = 2, .scale = 0.7, .causal = false}},
      {"alibi", {.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 0.7, .alibi = {0.5, 0.0625}}},
      {"softcap", {.heads = 2, .kv_heads = 2, .key_dim = 3, .value_dim = 3, .scale = 1.5, .softcap = 1.2}},
      {"everything",
       {.heads = 4,
        .kv_heads = 2,
        .key_dim = 3,
        .value_dim = 5,
        .scale = 1.3,
        .window = 40,
        .softcap = 2,
        .alibi = {0.5, 0.25, 0.125, 0.0625}}},
  };
}

struct Tensors {
  Batch batch;
  Tensor<double> q, k, v, y, keep, dy, dq, dk, dv;

  Tensors(const Attention& op, Index sequences, Index length, unsigned seed, double size = 1) {
    batch.sequences = sequences;
    batch.length = length;
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, size);
    const Index t = batch.tokens();
    const auto draw = [&](Index cols) {
      Tensor<double> x(t, cols);
      for (Index i = 0; i < x.size(); ++i) x.data()[i] = normal(random);
      return x;
    };
    q = draw(op.heads * op.key_dim);
    k = draw(op.kv_heads * op.key_dim);
    v = draw(op.kv_heads * op.value_dim);
    dy = draw(op.channels());
    y = Tensor<double>(t, op.channels());
    keep = Tensor<double>(t, op.keep());
    for (auto* d : {&q, &k, &v}) {
      auto& to = d == &q ? dq : d == &k ? dk : dv;
      to = Tensor<double>(d->rows(), d->cols());
      std::fill_n(to.data(), to.size(), std::nan(""));
    }
  }

  void run(const Attention& op) {
    const std::vector<View<const double>> x = {q.view(), k.view(), v.view()};
    op.forward(Down<double>{batch, x, {}, y.view(), keep.view()});
    const std::vector<Into<double>> dx = {{dq.view()}, {dk.view()}, {dv.view()}};
    op.backward(Up<double>{batch, x, {}, y.view(), keep.view(), dy.view(), dx, {}});
  }
};

struct Reference {
  Tensor<double> y, dq, dk, dv;
  AttentionSummary summary;
};

Tensor<double> zeros(const Tensor<double>& like) {
  Tensor<double> out(like.rows(), like.cols());
  std::fill_n(out.data(), out.size(), 0.0);
  return out;
}

// The definition, and nothing else: which j does i see?
bool sees(const Attention& op, Index i, Index j) {
  if (op.causal && j > i) return false;
  return op.window == 0 || std::abs(i - j) < op.window;
}

// One query of one head: weights, and the derivative of each weight's score.
struct Query {
  std::vector<double> score, weight, slope;
};

Query query(const Attention& op, const Tensors& t, Index start, Index i, Index h) {
  const Index g = h * op.kv_heads / op.heads;
  Query out;
  double total = 0;
  for (Index j = 0; j < t.batch.length; ++j) {
    double s = 0;
    for (Index c = 0; c < op.key_dim; ++c) s += t.q(start + i, h * op.key_dim + c) * t.k(start + j, g * op.key_dim + c);
    s *= op.scale;
    double z = s, slope = 1;
    if (op.softcap > 0) {
      z = op.softcap * std::tanh(s / op.softcap);
      slope = 1 / std::pow(std::cosh(s / op.softcap), 2);
    }
    if (!op.alibi.empty()) z -= op.alibi[static_cast<std::size_t>(h)] * static_cast<double>(i - j);
    const double w = sees(op, i, j) ? std::exp(z) : 0;
    total += w;
    out.score.push_back(s);
    out.weight.push_back(w);
    out.slope.push_back(slope);
  }
  for (double& w : out.weight) w /= total;
  return out;
}

// y and all gradients of one query of one head, by the chain rule alone.
void add_query(const Attention& op, const Tensors& t, Index start, Index i, Index h, const Query& query, Reference& r) {
  const Index g = h * op.kv_heads / op.heads;
  std::vector<double> da;
  double mean = 0;
  for (Index j = 0; j < t.batch.length; ++j) {
    const double a = query.weight[static_cast<std::size_t>(j)];
    double d = 0;
    for (Index c = 0; c < op.value_dim; ++c) {
      const double dy = t.dy(start + i, h * op.value_dim + c);
      r.y(start + i, h * op.value_dim + c) += a * t.v(start + j, g * op.value_dim + c);
      r.dv(start + j, g * op.value_dim + c) += a * dy;
      d += dy * t.v(start + j, g * op.value_dim + c);
    }
    da.push_back(d);
    mean += a * d;
  }
  for (Index j = 0; j < t.batch.length; ++j) {
    const auto n = static_cast<std::size_t>(j);
    const double ds = op.scale * query.slope[n] * query.weight[n] * (da[n] - mean);
    for (Index c = 0; c < op.key_dim; ++c) {
      r.dq(start + i, h * op.key_dim + c) += ds * t.k(start + j, g * op.key_dim + c);
      r.dk(start + j, g * op.key_dim + c) += ds * t.q(start + i, h * op.key_dim + c);
    }
  }
}

Reference reference(const Attention& op, const Tensors& t) {
  Reference r{zeros(t.y), zeros(t.q), zeros(t.k), zeros(t.v), {}};
  std::vector<double> visible_scores;
  for (Index b = 0; b < t.batch.sequences; ++b) {
    for (Index h = 0; h < op.heads; ++h) {
      for (Index i = 0; i < t.batch.length; ++i) {
        const Query one = query(op, t, b * t.batch.length, i, h);
        add_query(op, t, b * t.batch.length, i, h, one, r);
        for (Index j = 0; j < t.batch.length; ++j) {
          const double a = one.weight[static_cast<std::size_t>(j)];
          if (!sees(op, i, j)) continue;
          visible_scores.push_back(one.score[static_cast<std::size_t>(j)]);
          r.summary.entropy -= a > 0 ? a * std::log(a) : 0;
          r.summary.sum_squares += a * a;
        }
      }
    }
  }
  const double rows = static_cast<double>(t.batch.tokens() * op.heads), pairs = static_cast<double>(visible_scores.size());
  r.summary.entropy /= rows;
  r.summary.sum_squares /= rows;
  double mean = 0;
  for (const double s : visible_scores) mean += s / pairs;
  for (const double s : visible_scores) r.summary.score_variance += (s - mean) * (s - mean) / pairs;
  return r;
}

// A rounding bound: 1e-13 covers eps (length + dim) with the exponentials' own factor.
void expect_same(const Tensor<double>& got, const Tensor<double>& want, const std::string& where) {
  double size = 0;
  for (Index i = 0; i < want.size(); ++i) size = std::max(size, std::abs(want.data()[i]));
  for (Index i = 0; i < want.size(); ++i) {
    const double error = std::abs(got.data()[i] - want.data()[i]);
    ASSERT_TRUE(error <= 1e-13 * std::max(size, 1e-2))
        << where
        << fmt::format(" ({}, {}): {:+.15e}, four loops {:+.15e}", i / want.cols(), i % want.cols(), got.data()[i], want.data()[i]);
  }
}

TEST(Attention, AgreesWithFourLoops) {
  for (const Case& c : cases()) {
    for (const Index length : {1, 2, 63, 64, 65, 130}) {
      Tensors t(c.op, 2, length, static_cast<unsigned>(length));
      const Reference r = reference(c.op, t);
      t.run(c.op);
      const std::string where = fmt::format("{} length {}", c.name, length);
      expect_same(t.y, r.y, where + " y");
      expect_same(t.dq, r.dq, where + " dq");
      expect_same(t.dk, r.dk, where + " dk");
      expect_same(t.dv, r.dv, where + " dv");
    }
  }
}

TEST(Attention, SummaryAgreesWithFourLoops) {
  for (const Case& c : cases()) {
    for (const Index length : {1, 2, 65}) {
      Tensors t(c.op, 2, length, static_cast<unsigned>(length) + 1000);
      const Reference r = reference(c.op, t);
      t.run(c.op);
      const AttentionSummary got = c.op.summary<double>(t.batch, t.keep.view());
      const auto close = [&](double a, double b, double size) { return std::abs(a - b) <= 1e-12 * size; };
      EXPECT_TRUE(close(got.entropy, r.summary.entropy, 1))
          << c.name << " " << length << " entropy " << got.entropy << ", loops " << r.summary.entropy;
      EXPECT_TRUE(close(got.sum_squares, r.summary.sum_squares, 1))
          << c.name << " " << length << " sum_squares " << got.sum_squares << ", loops " << r.summary.sum_squares;
      EXPECT_TRUE(close(got.score_variance, r.summary.score_variance, 1 + r.summary.score_variance))
          << c.name << " " << length << " score_variance " << got.score_variance << ", loops " << r.summary.score_variance;
    }
  }
}

// Queries of zero: every visible key weighs the same, so query i of n keys has entropy ln n and sum of squares 1/n.
TEST(Attention, UniformScoresHaveEntropyOfTheirNumber) {
  for (const bool causal : {false, true}) {
    const Attention op{.heads = 3, .kv_heads = 3, .key_dim = 4, .value_dim = 4, .scale = 0.5, .causal = causal};
    Tensors t(op, 2, 130, 1);
    std::fill_n(t.q.data(), t.q.size(), 0.0);
    t.run(op);
    double entropy = 0, squares = 0;
    for (int n = 1; n <= 130; ++n) {
      entropy += std::log(causal ? n : 130) / 130;
      squares += 1.0 / (causal ? n : 130) / 130;
    }
    const AttentionSummary got = op.summary<double>(t.batch, t.keep.view());
    EXPECT_NEAR(got.entropy, entropy, 1e-13);
    EXPECT_NEAR(got.sum_squares, squares, 1e-14);
    EXPECT_EQ(got.score_variance, 0);
  }
}

TEST(Attention, OneTokenSeesItself) {
  for (const Case& c : cases()) {
    Tensors t(c.op, 3, 1, 5, 10.0);
    t.run(c.op);
    const AttentionSummary got = c.op.summary<double>(t.batch, t.keep.view());
    EXPECT_EQ(got.entropy, 0) << c.name;
    EXPECT_EQ(got.sum_squares, 1) << c.name;
    for (Index i = 0; i < t.dq.size(); ++i) EXPECT_EQ(t.dq.data()[i], 0) << c.name;
    for (Index s = 0; s < 3; ++s) {
      for (Index col = 0; col < c.op.channels(); ++col) {
        const Index g = col / c.op.value_dim * c.op.kv_heads / c.op.heads;
        EXPECT_EQ(t.y(s, col), t.v(s, g * c.op.value_dim + col % c.op.value_dim)) << c.name;
      }
    }
  }
}

// Scores of thousands: the largest is taken out before the exponential, so nothing overflows and the weights are one-hot.
TEST(Attention, LargeScoresDoNotOverflow) {
  const Attention op{.heads = 2, .kv_heads = 2, .key_dim = 8, .value_dim = 4, .scale = 1};
  Tensors t(op, 2, 70, 3, 300.0);
  const Index d = op.key_dim;
  t.run(op);
  for (Index i = 0; i < 70; ++i) {
    Index best = 0;
    double top = -1e300;
    for (Index j = 0; j <= i; ++j) {
      double s = 0;
      for (Index c = 0; c < d; ++c) s += t.q(i, c) * t.k(j, c);
      if (s > top) top = s, best = j;
    }
    for (Index c = 0; c < op.value_dim; ++c) EXPECT_NEAR(t.y(i, c), t.v(best, c), 1e-9 * 300) << "query " << i;
  }
  const AttentionSummary got = op.summary<double>(t.batch, t.keep.view());
  EXPECT_TRUE(got.entropy >= 0 && got.entropy <= 1e-3) << got.entropy;
}

}  // namespace
}  // namespace stepzero
