// Attention with rotary positions and small scores: what its series says against drawn heads, and uniform weights against plain sums.
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/ops/heads.hpp"
#include "stepzero/ops/rotary.hpp"

namespace stepzero {
namespace {

constexpr Index turned_tokens = 7, turned_width = 16;
using HeadVector = std::array<double, turned_width>;

struct TurnedCase {
  std::string name;
  Attention op;
  Index turned;
};

std::vector<TurnedCase> turned_cases() {
  return {{"Causal", {.causal = true}, turned_width},
          {"Both", {.causal = false}, turned_width},
          {"Partial", {.causal = true}, 6},
          {"Window", {.window = 4}, turned_width}};
}

// Tokens of one size.
Kernel token_kernel(double common, double slope) {
  const Kernel K = Kernel::from(turned_tokens, [=](Index t, Index s) {
    const double x = static_cast<double>(t - s), apart = t == s ? 1 : 0.4 * std::exp(-0.3 * x * x);
    return common + (1 - common) * apart + slope * std::cos(1.3 * static_cast<double>(t)) * std::cos(1.3 * static_cast<double>(s));
  });
  return Kernel::from(turned_tokens, [&](Index t, Index s) { return K(t, s) / std::sqrt(K(t, t) * K(s, s)); });
}

// A head: what reaches its queries and keys in the mean over values and gradients, before the turn and after it.
struct HeadMeans {
  static Matrix square() { return {turned_tokens, turned_tokens}; }
  Matrix y = square(), gv = square();
  std::array<Matrix, 2> q = {square(), square()}, k = {square(), square()};  // before the turn, after it

  [[nodiscard]] std::array<Matrix*, 6> all() { return {&y, &gv, &q[0], &q[1], &k[0], &k[1]}; }
};

class TurnedAttention : public testing::TestWithParam<TurnedCase> {
 protected:
  static constexpr Index n = turned_tokens, dk = turned_width;

  void SetUp() override {
    batch_.sequences = 1;
    batch_.length = n;
    rotary_ = {.head_dim = dk, .turned = GetParam().turned, .base = 50};
    op_ = GetParam().op;
    op_.heads = op_.kv_heads = 64;
    op_.key_dim = op_.value_dim = dk;
  }

  [[nodiscard]] HeadVector turned_by(const HeadVector& x, Index places) const {
    HeadVector y = x;
    const Index half = rotary_.turned / 2;
    for (Index i = 0; i < half; ++i) {
      const double p = static_cast<double>(places) * rotary_.frequency(i);
      y[i] = std::cos(p) * x[i] - std::sin(p) * x[half + i];
      y[half + i] = std::sin(p) * x[i] + std::cos(p) * x[half + i];
    }
    return y;
  }
  static double dot(const HeadVector& a, const HeadVector& b) {
    double sum = 0;
    for (Index c = 0; c < dk; ++c) sum += a[c] * b[c];
    return sum;
  }

  // sum_jl (P_t V P_s)_jl times the product of key vectors x[t][j], for queries; and likewise for keys
  [[nodiscard]] HeadMeans reached(const Matrix& A, const std::vector<HeadVector>& q, const std::vector<HeadVector>& k) const {
    HeadMeans out;
    std::array<std::vector<std::vector<HeadVector>>, 2> turned;  // queries' and keys', at [t][j]: turned to j - t, t - j
    for (Index t = 0; t < n; ++t) {
      turned[0].emplace_back(), turned[1].emplace_back();
      for (Index j = 0; j < n; ++j) turned[0][t].push_back(turned_by(q[t], t - j)), turned[1][t].push_back(turned_by(k[j], j - t));
    }
    for (Matrix* m : out.all()) std::fill_n(m->data(), n * n, 0.0);
    const double c = op_.scale * op_.scale;
    for (Index t = 0; t < n; ++t) {
      for (Index s = 0; s < n; ++s) {
        std::array<double, n> a{}, b{};
        double whole = 0;
        for (Index j = 0; j < n; ++j) {
          for (Index l = 0; l < n; ++l) a[j] += v_(j, l) * A(s, l), b[l] += A(t, j) * v_(j, l), whole += A(t, j) * v_(j, l) * A(s, l);
        }
        out.y(t, s) = whole;
        for (Index j = 0; j < n; ++j) {
          for (Index l = 0; l < n; ++l) {
            out.gv(j, l) += A(t, j) * A(s, l) * G_(t, s);
            const double part = c * G_(t, s) * A(t, j) * A(s, l) * (v_(j, l) - a[j] - b[l] + whole);
            if (part == 0) continue;
            out.q[0](t, s) += part * dot(turned[1][t][j], turned[1][s][l]);
            out.q[1](t, s) += part * dot(turned[1][0][j], turned[1][0][l]);
            out.k[0](j, l) += part * dot(turned[0][t][j], turned[0][s][l]);
            out.k[1](j, l) += part * dot(turned[0][t][0], turned[0][s][0]);
          }
        }
      }
    }
    return out;
  }

  [[nodiscard]] HeadMeans predicted(double size, double noise = 0) const {
    const Kernel K = k_.scaled(size);
    DownWire q, k, v;
    for (DownWire* m : {&q, &k, &v}) m->width = 64 * dk, m->f.noise = noise + 1.0 / (64 * dk);
    q.K = k.K = K;
    v.K = v_;
    Rotary turn = rotary_;
    turn.heads = 64;
    const std::array<const DownWire*, 1> side = {&k};
    DownWire turned = push_finite(turn, {batch_, side, {}});
    turned.note = turn.note({batch_, side, {}});
    const std::array<const DownWire*, 3> x = {&turned, &turned, &v};
    const DownWire y = op_.push({batch_, x, {}});
    const Pulled up = op_.pull({batch_, x, {}, y, UpWire(G_)});
    HeadMeans out;
    const std::array<const Kernel*, 6> from = {
        &y.K, &up.dx[2].G, &note_of<TurnedBack>(up.dx[0])->G, &up.dx[0].G, &note_of<TurnedBack>(up.dx[1])->G, &up.dx[1].G};
    const auto to = out.all();
    for (std::size_t i = 0; i < to.size(); ++i) {
      for (Index e = 0; e < n * n; ++e) to[i]->data()[e] = (*from[i])(e / n, e % n);
    }
    return out;
  }

  // The softmax of the scores.
  [[nodiscard]] Matrix weights(const std::vector<HeadVector>& q, const std::vector<HeadVector>& k) const {
    Matrix A(n, n);
    for (Index t = 0; t < n; ++t) {
      const Attention::Range see = op_.visible(t, n);
      double sum = 0;
      for (Index j = 0; j < n; ++j) {
        A(t, j) = j >= see.begin && j < see.end ? std::exp(op_.scale * dot(turned_by(q[t], t), turned_by(k[j], j))) : 0;
        sum += A(t, j);
      }
      for (Index j = 0; j < n; ++j) A(t, j) /= sum;
    }
    return A;
  }

  // Rows that follow the kernel of queries and keys, from so many columns of numbers.
  template <class Draw>
  [[nodiscard]] std::vector<HeadVector> rows(double size, Draw draw) const {
    const Tensor<float> root = kernels::root(k_, std::sqrt(size));  // upper triangle
    std::vector<HeadVector> out(n, HeadVector{});
    for (Index i = 0; i < n; ++i) {
      for (Index c = 0; c < dk; ++c) {
        const double z = draw();
        for (Index t = 0; t < n; ++t) out[t][c] += static_cast<double>(root(i, t)) * z;
      }
    }
    return out;
  }

  Batch batch_;
  Rotary rotary_;
  Attention op_;
  Kernel k_ = token_kernel(0.3, 0.2), v_ = token_kernel(0.5, -0.1), G_ = token_kernel(0.2, 0.3);
};

// Scores of no variance: known entry by entry, from r alone.
TEST_P(TurnedAttention, OfUniformWeightsIsPlainSums) {
  op_.scale = 0.3;
  constexpr double size = 1e-6;
  const auto mean = [&](Index places, const Kernel& K, Index a, Index b) {
    double r = static_cast<double>(dk - rotary_.turned);
    for (Index i = 0; i < rotary_.turned / 2; ++i) r += 2 * std::cos(static_cast<double>(places) * rotary_.frequency(i));
    return size * r * K(a, b);
  };
  const HeadMeans seen = predicted(size);
  const std::vector<HeadVector> none(n, HeadVector{});
  const Matrix A = weights(none, none);
  HeadMeans plain;
  for (Matrix* m : plain.all()) std::fill_n(m->data(), n * n, 0.0);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) {
      for (Index j = 0; j < n; ++j) {
        for (Index l = 0; l < n; ++l) {
          double part = 0;
          for (Index e = 0; e < n; ++e) {
            for (Index f = 0; f < n; ++f) part += A(t, j) * ((j == e) - A(t, e)) * v_(e, f) * A(s, l) * ((l == f) - A(s, f));
          }
          part *= op_.scale * op_.scale * G_(t, s);
          plain.q[0](t, s) += part * mean(t - s - j + l, k_, j, l);
          plain.k[0](j, l) += part * mean(t - s - j + l, k_, t, s);
          plain.q[1](t, s) += part * mean(j - l, k_, j, l);
          plain.k[1](j, l) += part * mean(t - s, k_, t, s);
        }
      }
    }
  }
  for (std::size_t side = 0; side < 2; ++side) {
    for (Index e = 0; e < n * n; ++e) {
      EXPECT_NEAR(seen.q[side].data()[e] / size, plain.q[side].data()[e] / size, 1e-5) << e;
      EXPECT_NEAR(seen.k[side].data()[e] / size, plain.k[side].data()[e] / size, 1e-5) << e;
    }
  }
}

// The difference to uniform weights of the same head is what heads are drawn for.
TEST_P(TurnedAttention, OfSmallScoresIsTheMeanOfDrawnHeads) {
  constexpr double size = 0.05, tiny = 1e-7;
  constexpr int draws = 1500;
  op_.scale = 1 / std::sqrt(static_cast<double>(dk));
  const double variance = std::sqrt(size);  // of queries and keys
  std::mt19937 bits(9);
  std::normal_distribution<double> normal;
  HeadMeans sum;
  for (Matrix* m : sum.all()) std::fill_n(m->data(), n * n, 0.0);
  const std::vector<HeadVector> none(n, HeadVector{});
  const Matrix uniform = weights(none, none);
  for (int i = 0; i < draws; ++i) {
    std::vector<HeadVector> q = rows(variance, [&] { return normal(bits); });
    const std::vector<HeadVector> k = rows(variance, [&] { return normal(bits); });
    HeadMeans base = reached(uniform, q, k), first = reached(weights(q, k), q, k);
    for (HeadVector& x : q) {
      for (double& e : x) e = -e;
    }
    HeadMeans second = reached(weights(q, k), q, k);
    for (std::size_t part = 0; part < 6; ++part) {
      for (Index e = 0; e < n * n; ++e) {
        const double mean = (first.all()[part]->data()[e] + second.all()[part]->data()[e]) / 2;
        sum.all()[part]->data()[e] += (mean - base.all()[part]->data()[e]) / draws;
      }
    }
  }
  HeadMeans full = predicted(variance), flat = predicted(tiny);
  for (std::size_t part = 0; part < 6; ++part) {
    const double grown = part < 2 ? 1 : variance / tiny;  // gradients of queries are proportional to keys
    double trace = 0, known = 0, drawn = 0, all = 0, all_drawn = 0;
    for (Index t = 0; t < n; ++t) {
      for (Index s = 0; s < n; ++s) {
        const double more = (*full.all()[part])(t, s) - grown * (*flat.all()[part])(t, s), seen = (*sum.all()[part])(t, s);
        if (t == s) trace += grown * (*flat.all()[part])(t, t), known += more, drawn += seen;
        all += more * k_(t, s), all_drawn += seen * k_(t, s);
      }
    }
    const double enough = part < 2 ? 0.002 : 0.01;  // what reaches q and k is right to a hundredth at this variance
    EXPECT_NEAR(known / trace, drawn / trace, enough) << part;
    EXPECT_NEAR(all / trace, all_drawn / trace, enough) << part;
  }
}

// Keys and values made from one draw of their input, a sample covariance of few channels: what it adds to the gradient of the queries.
TEST_P(TurnedAttention, FeelsTheNoiseThatKeysAndValuesShare) {
  constexpr double size = 1e-6;
  constexpr int channels = 25, draws = 3000;
  op_.scale = 0.3;
  v_ = k_;
  const std::vector<HeadVector> none(n, HeadVector{});
  const Matrix A = weights(none, none);
  std::vector<double> r(2 * n - 1);  // dk r
  for (Index p = 0; p < std::ssize(r); ++p) {
    r[p] = static_cast<double>(dk - rotary_.turned);
    for (Index i = 0; i < rotary_.turned / 2; ++i) r[p] += 2 * std::cos(static_cast<double>(p) * rotary_.frequency(i));
  }
  const Tensor<float> root = kernels::root(k_, 1);
  std::mt19937 bits(4);
  std::normal_distribution<double> normal(0, 1 / std::sqrt(static_cast<double>(channels)));
  double drawn = 0;  // sum of the gradient's kernel over all pairs of tokens
  for (int i = 0; i < draws; ++i) {
    Matrix x(n, channels), K(n, n), KA(n, n);
    std::fill_n(x.data(), x.size(), 0.0);
    for (int c = 0; c < channels; ++c) {
      for (Index e = 0; e < n; ++e) {
        const double z = normal(bits);
        for (Index t = e; t < n; ++t) x(t, c) += static_cast<double>(root(e, t)) * z;
      }
    }
    for (Index j = 0; j < n; ++j) {
      for (Index l = 0; l < n; ++l) K(j, l) = std::inner_product(&x(j, 0), &x(j, 0) + channels, &x(l, 0), 0.0);
    }
    for (Index j = 0; j < n; ++j) {
      for (Index s = 0; s < n; ++s) KA(j, s) = std::inner_product(&K(j, 0), &K(j, 0) + n, &A(s, 0), 0.0);
    }
    for (Index t = 0; t < n; ++t) {
      for (Index s = 0; s < n; ++s) {
        double whole = 0;
        for (Index j = 0; j < n; ++j) whole += A(t, j) * KA(j, s);
        for (Index j = 0; j < n; ++j) {
          for (Index l = 0; l < n; ++l) {
            const double centred = A(t, j) * A(s, l) * (K(j, l) - KA(j, s) - KA(l, t) + whole);
            drawn += G_(t, s) * centred * K(j, l) * r[std::abs(t - s - j + l)] * op_.scale * op_.scale * size / draws;
          }
        }
      }
    }
  }
  const auto sum = [&](double noise) {
    const HeadMeans known = predicted(size, noise);
    return std::accumulate(known.q[0].data(), known.q[0].data() + n * n, 0.0);
  };
  const double plain = sum(0), noisy = sum(1.0 / channels);
  EXPECT_GT(noisy, 1.08 * plain);
  EXPECT_NEAR((noisy + plain / channels) / drawn, 1, 0.03);  // the factor 1 + 1 / channels is dropped
}

// Single draws of few heads: the gradient of a key bias, over which nearly everything cancels, is right in the mean.
TEST_P(TurnedAttention, OfSingleDrawsKeepsTheSumOverTokens) {
  constexpr double size = 0.1;
  constexpr Index draws = 4000;
  op_.scale = 1 / std::sqrt(static_cast<double>(dk));
  v_ = k_;  // heads are drawn with the correlations of values
  const HeadMeans rule = predicted(size);
  op_.heads = op_.kv_heads = 2;
  const Kernel K = k_.scaled(size);
  DownWire k, v;
  k.K = K;
  v.K = v_;
  k.width = v.width = 2 * dk;
  Rotary turn = rotary_;
  turn.heads = 2;
  const std::array<const DownWire*, 1> side = {&k};
  DownWire turned = push_finite(turn, {batch_, side, {}});
  turned.note = turn.note({batch_, side, {}});
  const std::array<const DownWire*, 3> x = {&turned, &turned, &v};
  double sum = 0, known = 0, sizes = 0, known_sizes = 0;
  for (Index i = 0; i < draws; ++i) {
    const Draws draw{.place = 3, .single = i};
    const DownWire y = push_drawn(op_, {batch_, x, {}, draw});
    const Kernel gk = note_of<TurnedBack>(pull_drawn(op_, {batch_, x, {}, y, UpWire(G_), draw}).dx[1])->G;
    sum += gk.sum() / draws;
    sizes += gk.trace() / draws;
  }
  for (Index j = 0; j < n; ++j) {
    for (Index l = 0; l < n; ++l) known += rule.k[0](j, l);
    known_sizes += rule.k[0](j, j);
  }
  EXPECT_NEAR(sum / known, 1, 0.1);
  EXPECT_NEAR(sizes / known_sizes, 1, 0.04);
}

INSTANTIATE_TEST_SUITE_P(Masks, TurnedAttention, testing::ValuesIn(turned_cases()), [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace stepzero
