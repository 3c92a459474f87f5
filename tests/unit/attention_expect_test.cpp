// The mean over gradients of what reaches q and k of a head, against many drawn gradients that go back through the softmax.
#include "stepzero/ops/attention_expect.hpp"

#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stepzero/ops/attention_draw.hpp"

namespace stepzero {
namespace {

Tensor<float> normals(std::mt19937& bits, Index rows, Index cols) {
  std::normal_distribution<float> normal;
  Tensor<float> out(rows, cols);
  for (Index i = 0; i < out.size(); ++i) out.data()[i] = normal(bits);
  return out;
}

class ExpectedGrams : public testing::TestWithParam<bool> {};

TEST_P(ExpectedGrams, AreTheMeanOfDrawnOnes) {
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
  Tensor<float> copy(n, n);
  std::copy_n(a.data(), a.size(), copy.data());
  Tensor<float> gq(n, n), gk(n, n);
  expected_grams({std::move(copy), std::move(b), q, k, 0.7F, V}, G, gq, gk);

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

INSTANTIATE_TEST_SUITE_P(SoftcapOrNot, ExpectedGrams, testing::Bool());

}  // namespace
}  // namespace stepzero
