// Attention with rotary positions and small scores: what its series says against drawn heads, and uniform weights against plain sums.
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "stepzero/kernels/decompose.hpp"
#include "stepzero/ops/attention.hpp"
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

  [[nodiscard]] HeadVector turn(const HeadVector& x, Index places) const {
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
      for (Index j = 0; j < n; ++j) turned[0][t].push_back(turn(q[t], t - j)), turned[1][t].push_back(turn(k[j], j - t));
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

  [[nodiscard]] HeadMeans predicted(double size) const {
    const Kernel K = k_.scaled(size);
    Moment q, k, v;
    for (Moment* m : {&q, &k, &v}) m->width = 64 * dk, m->noise = 1.0 / (64 * dk);
    q.K = k.K = K;
    v.K = v_;
    Rotary heads = rotary_;
    heads.heads = 64;
    const std::array<const Moment*, 1> side = {&k};
    const Moment turned = heads.push({batch_, side, {}});
    const std::array<const Moment*, 3> x = {&turned, &turned, &v};
    const Moment y = op_.push({batch_, x, {}});
    const Pulled up = op_.pull({batch_, x, {}, y, {.G = G_}});
    HeadMeans out;
    const std::array<const Kernel*, 6> from = {&y.K,         &up.dx[2].G, &up.dx[0].before_rotary.value(),
                                               &up.dx[0].G, &up.dx[1].before_rotary.value(), &up.dx[1].G};
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
        A(t, j) = j >= see.begin && j < see.end ? std::exp(op_.scale * dot(turn(q[t], t), turn(k[j], j))) : 0;
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
  Matrix gq(n, n), gk(n, n);
  std::fill_n(gq.data(), n * n, 0.0);
  std::fill_n(gk.data(), n * n, 0.0);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) {
      for (Index j = 0; j < n; ++j) {
        for (Index l = 0; l < n; ++l) {
          double part = 0;
          for (Index e = 0; e < n; ++e) {
            for (Index f = 0; f < n; ++f) part += A(t, j) * ((j == e) - A(t, e)) * v_(e, f) * A(s, l) * ((l == f) - A(s, f));
          }
          part *= op_.scale * op_.scale * G_(t, s);
          gq(t, s) += part * mean(t - s - j + l, k_, j, l);
          gk(j, l) += part * mean(t - s - j + l, k_, t, s);
        }
      }
    }
  }
  for (Index e = 0; e < n * n; ++e) {
    EXPECT_NEAR(seen.q[0].data()[e] / size, gq.data()[e] / size, 1e-5) << e;
    EXPECT_NEAR(seen.k[0].data()[e] / size, gk.data()[e] / size, 1e-5) << e;
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

INSTANTIATE_TEST_SUITE_P(Masks, TurnedAttention, testing::ValuesIn(turned_cases()), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace stepzero
