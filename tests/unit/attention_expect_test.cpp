// The mean over gradients of what reaches q and k of a head, against many drawn gradients that go back through the softmax.
#include "stepzero/ops/attention_expect.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {
namespace {

Tensor<float> normals(std::mt19937& bits, Index rows, Index cols) {
  std::normal_distribution<float> normal;
  Tensor<float> out(rows, cols);
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = normal(bits);
  return out;
}

Tensor<float> copy_of(const Tensor<float>& x) {
  Tensor<float> out(x.rows(), x.cols());
  std::copy_n(x.data(), x.size(), out.data());
  return out;
}

class DrawnGrams : public testing::TestWithParam<bool> {};

TEST_P(DrawnGrams, AreTheMeanOfDrawnOnes) {
  constexpr Index n = 6, dk = 3, rank = 4;
  constexpr int draws = 60000;
  std::mt19937 bits(5);
  const Tensor<float> q = normals(bits, n, dk), k = normals(bits, n, dk), F = normals(bits, n, rank), R = normals(bits, n, rank);
  Tensor<float> a(n, n), slope(n, n), b;
  for (Index t = 0; t < n; ++t) {
    float sum = 0;
    for (Index j = 0; j < n; ++j) sum += a(t, j) = j <= t ? std::exp(std::sin(static_cast<float>(3 * t + 7 * j))) : 0;
    for (Index j = 0; j < n; ++j) a(t, j) /= sum;
    for (Index j = 0; j < n; ++j) slope(t, j) = GetParam() ? 0.5F + 0.4F * std::cos(static_cast<float>(t + 2 * j)) : 1;
  }
  if (GetParam()) {
    b = Tensor<float>(n, n);
    for (Index i = 0; i < b.size(); ++i) b.data()[i] = a.data()[i] * slope.data()[i];
  }
  const Tensor<float> V = product(Trans::no, Trans::yes, F, F), G = product(Trans::no, Trans::yes, R, R);
  Tensor<float> gq(n, n), gk(n, n);
  expected_grams({copy_of(a), std::move(b), q, k, 0.7F}, V, G, gq, gk);

  // by the definition, sum by sum
  const auto through = [&](Index t, Index j, Index l) {  // P_t
    return static_cast<double>(slope(t, j) * a(t, j)) * ((j == l ? 1.0 : 0.0) - static_cast<double>(a(t, l)));
  };
  Tensor<double> plain_q(n, n), plain_k(n, n);
  std::fill_n(plain_q.data(), plain_q.size(), 0.0);
  std::fill_n(plain_k.data(), plain_k.size(), 0.0);
  const Tensor<float> K = product(Trans::no, Trans::yes, k, k), Q = product(Trans::no, Trans::yes, q, q);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) {
      for (Index j = 0; j < n; ++j) {
        for (Index l = 0; l < n; ++l) {
          double entry = 0;  // (P_t V P_s')_jl
          for (Index e = 0; e < n; ++e) {
            for (Index f = 0; f < n; ++f) entry += through(t, j, e) * static_cast<double>(V(e, f)) * through(s, l, f);
          }
          const double g = 0.49 * static_cast<double>(G(t, s)) * entry;
          plain_q(t, s) += g * static_cast<double>(K(j, l));
          plain_k(j, l) += g * static_cast<double>(Q(t, s));
        }
      }
    }
  }
  for (Index e = 0; e < gq.size(); ++e) {
    EXPECT_NEAR(static_cast<double>(gq.data()[e]), plain_q.data()[e], 1e-4) << e;
    EXPECT_NEAR(static_cast<double>(gk.data()[e]), plain_k.data()[e], 1e-4) << e;
  }

  Tensor<double> sum_q(n, n), sum_k(n, n);
  std::fill_n(sum_q.data(), sum_q.size(), 0.0);
  std::fill_n(sum_k.data(), sum_k.size(), 0.0);
  for (int i = 0; i < draws; ++i) {
    Tensor<float> d = product(Trans::no, Trans::yes, product(Trans::no, Trans::no, R, normals(bits, rank, rank)), F);  // dA
    for (Index t = 0; t < n; ++t) {
      float mean = 0;
      for (Index j = 0; j < n; ++j) mean += a(t, j) * d(t, j);
      for (Index j = 0; j < n; ++j) d(t, j) = 0.7F * slope(t, j) * a(t, j) * (d(t, j) - mean);
    }
    const Tensor<float> dq = product(Trans::no, Trans::no, d, k), dk_ = product(Trans::yes, Trans::no, d, q);
    const Tensor<float> qq = product(Trans::no, Trans::yes, dq, dq), kk = product(Trans::no, Trans::yes, dk_, dk_);
    for (Index e = 0; e < qq.size(); ++e) {
      sum_q.data()[e] += static_cast<double>(qq.data()[e]);
      sum_k.data()[e] += static_cast<double>(kk.data()[e]);
    }
  }
  const auto compare = [&](const Tensor<float>& known, const Tensor<double>& sum) {
    double largest = 0;
    for (Index t = 0; t < n; ++t) largest = std::max(largest, static_cast<double>(known(t, t)));
    for (Index e = 0; e < known.size(); ++e) EXPECT_NEAR(static_cast<double>(known.data()[e]), sum.data()[e] / draws, 0.03 * largest) << e;
  };
  compare(gq, sum_q);
  compare(gk, sum_k);
}

INSTANTIATE_TEST_SUITE_P(SoftcapOrNot, DrawnGrams, testing::Bool());

// The same by the definition. The output o_t of all heads is that of this one and, in a direction of its own, what the others put
// out; the gradient's covariance at a token is G_tt (1 - (1 - along) o o' / |o|^2), of which this head sees the corner M_t.
class TakenOut : public testing::TestWithParam<bool> {};

TEST_P(TakenOut, IsWhatAnExplicitProjectionTakes) {
  constexpr Index n = 5, dk = 3, rank = 4;
  constexpr double scale = 0.7, along = 0.3;
  std::mt19937 bits(11);
  const Tensor<float> q = normals(bits, n, dk), k = normals(bits, n, dk), F = normals(bits, n, rank), R = normals(bits, n, rank);
  Tensor<float> a(n, n), b(n, n), gq(n, n), gk(n, n);
  for (Index t = 0; t < n; ++t) {
    float sum = 0;
    for (Index j = 0; j < n; ++j) sum += a(t, j) = j <= t + 1 ? std::exp(std::sin(static_cast<float>(3 * t + 7 * j))) : 0;
    for (Index j = 0; j < n; ++j) a(t, j) /= sum;
    for (Index j = 0; j < n; ++j) b(t, j) = a(t, j) * (GetParam() ? 0.5F + 0.4F * std::cos(static_cast<float>(t + 2 * j)) : 1);
  }
  const std::vector<double> others = {0.0, 0.1, 0.5, 1.0, 4.0};
  const Tensor<float> V = product(Trans::no, Trans::yes, F, F), G = product(Trans::no, Trans::yes, R, R),
                      o = product(Trans::no, Trans::no, a, F);
  const GivenHead head{copy_of(a), GetParam() ? copy_of(b) : Tensor<float>(), q, k, static_cast<float>(scale)};
  expected_grams(head, V, G, gq, gk);
  take_out_along(head, V, along, others, G, gq, gk);

  // J_t, (n, rank): what a gradient of the head's output at token t makes of its scores
  const auto through = [&](Index t, Index j, Index c) {
    double sum = 0;
    for (Index l = 0; l < n; ++l)
      sum += static_cast<double>(b(t, j)) * ((j == l ? 1 : 0) - static_cast<double>(a(t, l))) * static_cast<double>(F(l, c));
    return scale * sum;
  };
  const auto covariance = [&](Index t, Index s, Index c, Index e) {
    double size = others[static_cast<std::size_t>(t)];
    for (Index f = 0; f < rank; ++f) size += static_cast<double>(o(t, f) * o(t, f));
    const double lost = t == s ? (1 - along) * static_cast<double>(o(t, c) * o(t, e)) / size : 0;
    return static_cast<double>(G(t, s)) * ((c == e ? 1 : 0) - lost);  // M_t
  };
  const Tensor<float> K = product(Trans::no, Trans::yes, k, k), Q = product(Trans::no, Trans::yes, q, q);
  Tensor<double> plain_q(n, n), plain_k(n, n);
  std::fill_n(plain_q.data(), plain_q.size(), 0.0);
  std::fill_n(plain_k.data(), plain_k.size(), 0.0);
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) {
      for (Index j = 0; j < n; ++j) {
        for (Index l = 0; l < n; ++l) {
          double entry = 0;  // E ds_tj ds_sl
          for (Index c = 0; c < rank; ++c) {
            for (Index e = 0; e < rank; ++e) entry += through(t, j, c) * covariance(t, s, c, e) * through(s, l, e);
          }
          plain_q(t, s) += entry * static_cast<double>(K(j, l));
          plain_k(j, l) += entry * static_cast<double>(Q(t, s));
        }
      }
    }
  }
  for (Index e = 0; e < gq.size(); ++e) {
    EXPECT_NEAR(static_cast<double>(gq.data()[e]), plain_q.data()[e], 1e-4) << e;
    EXPECT_NEAR(static_cast<double>(gk.data()[e]), plain_k.data()[e], 1e-4) << e;
  }
}

INSTANTIATE_TEST_SUITE_P(SoftcapOrNot, TakenOut, testing::Bool());

// A gradient with nothing along the output of all heads together: this one's and what the others put out.
TEST(ExpectedGrams, LoseWhatLiesAlongTheOutput) {
  constexpr Index n = 5, dk = 3;
  constexpr int draws = 40000;
  constexpr float scale = 0.7F;
  std::mt19937 bits(7);
  std::normal_distribution<float> normal;
  const Tensor<float> q = normals(bits, n, dk), k = normals(bits, n, dk), F = normals(bits, n, dk);
  Tensor<float> a(n, n), G(n, n), gq(n, n), gk(n, n);
  for (Index t = 0; t < n; ++t) {
    float sum = 0;
    for (Index j = 0; j < n; ++j) sum += a(t, j) = std::exp(2 * std::sin(static_cast<float>(3 * t + 7 * j)));
    for (Index j = 0; j < n; ++j) a(t, j) /= sum;
    for (Index j = 0; j < n; ++j) G(t, j) = t == j ? 1.0F + static_cast<float>(t) : 0;
  }
  const std::vector<double> others = {0.0, 0.1, 0.5, 1.0, 4.0};
  const Tensor<float> V = product(Trans::no, Trans::yes, F, F), o = product(Trans::no, Trans::no, a, F);
  const GivenHead head{copy_of(a), {}, q, k, scale};
  expected_grams(head, V, G, gq, gk);
  const float before = gq(0, 0);
  take_out_along(head, V, 0, others, G, gq, gk);
  EXPECT_LT(gq(0, 0), 0.9F * before);

  std::vector<double> sum_q(n, 0.0), sum_k(n, 0.0);
  for (int i = 0; i < draws; ++i) {
    Tensor<float> d = normals(bits, n, dk);
    for (Index t = 0; t < n; ++t) {
      const auto rest = static_cast<float>(std::sqrt(others[static_cast<std::size_t>(t)])) * normal(bits);
      float along = rest, size = static_cast<float>(others[static_cast<std::size_t>(t)]);
      for (Index c = 0; c < dk; ++c) along += d(t, c) * o(t, c), size += o(t, c) * o(t, c);
      for (Index c = 0; c < dk; ++c) d(t, c) = std::sqrt(G(t, t)) * (d(t, c) - along / size * o(t, c));
    }
    Tensor<float> score = product(Trans::no, Trans::yes, d, F);
    for (Index t = 0; t < n; ++t) {
      float mean = 0;
      for (Index j = 0; j < n; ++j) mean += a(t, j) * score(t, j);
      for (Index j = 0; j < n; ++j) score(t, j) = scale * a(t, j) * (score(t, j) - mean);
    }
    const Tensor<float> dq = product(Trans::no, Trans::no, score, k), dk_ = product(Trans::yes, Trans::no, score, q);
    for (Index t = 0; t < n; ++t) {
      for (Index c = 0; c < dk; ++c) {
        sum_q[static_cast<std::size_t>(t)] += static_cast<double>(dq(t, c) * dq(t, c)) / draws;
        sum_k[static_cast<std::size_t>(t)] += static_cast<double>(dk_(t, c) * dk_(t, c)) / draws;
      }
    }
  }
  for (Index t = 0; t < n; ++t) {
    EXPECT_NEAR(static_cast<double>(gq(t, t)) / sum_q[static_cast<std::size_t>(t)], 1, 0.03) << t;
    EXPECT_NEAR(static_cast<double>(gk(t, t)) / sum_k[static_cast<std::size_t>(t)], 1, 0.03) << t;
  }
}

}  // namespace
}  // namespace stepzero
