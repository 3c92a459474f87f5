#pragma once
// How much the Gram matrices of single heads vary, for every pair of tokens.
#include <algorithm>
#include <cmath>

#include "stepzero/core/kernel.hpp"
#include "stepzero/core/view.hpp"
#include "stepzero/ops/drawn_sums.hpp"

namespace stepzero {

class Pairs {
 public:
  explicit Pairs(Index tokens) : square_(zeros(tokens)), crossed_(zeros(tokens)), sizes_(zeros(tokens)) {}

  void add(const Tensor<float>& K) {
    const Index n = K.rows();
    for (Index t = 0; t < n; ++t) {
      const float* const row = K.view().row(t);
      const double own = static_cast<double>(row[t]);
      for (Index s = 0; s < n; ++s) {
        const double k = static_cast<double>(row[s]);
        square_(t, s) += k * k;
        crossed_(t, s) += k * own;
        sizes_(t, s) += own * static_cast<double>(K(s, s));
      }
    }
  }

  // The relative variance over heads of a token's square, mean over tokens; and the part of it that is independent of the products with
  // other tokens (lone). K: the sum over the heads; share: one over their number; level: that variance of the mean square of all tokens.
  struct Sizes {
    double varies = 0, lone = 0;
  };
  [[nodiscard]] Sizes sizes(const Matrix& K, double share, double level) const {
    Sizes out;
    double others = 0, lift = 0;
    for (Index t = 0; t < K.rows(); ++t) {
      double common = 0, crossed = 0;  // what the token has in common with the others, and the same times its square
      for (Index s = 0; s < K.rows(); ++s) {
        common += s != t ? K(t, s) * share : 0;
        crossed += s != t ? crossed_(t, s) * share : 0;
      }
      const double mean = K(t, t) * share;
      if (!(mean > 0)) continue;
      const double relative = std::max(square_(t, t) * share / (mean * mean) - 1, 0.0);
      out.varies += relative / static_cast<double>(K.rows());
      others += common;
      lift += common * (3 * relative + level) / 4 - (crossed / mean - common);
    }
    out.lone = others > 0 ? lift / others * 4 / 3 : 0;
    return out;
  }

  // The variance over heads of the cosine of token t with those of [first, t), in units of (1 - rho^2)^2: the `noise` of a sample
  // covariance that varies as much. To first order the cosine is off by
  //     k_ts - rho (k_tt + k_ss) / 2,  k_ts = K_ts / (E K_tt E K_ss)^(1/2)
  [[nodiscard]] double noise(const Matrix& K, double share, Index first, Index t) const {
    double variance = 0, units = 0;
    const double a = K(t, t) * share;
    for (Index s = first; s < t; ++s) {
      const double b = K(s, s) * share, ab = a * b, root = std::sqrt(ab);
      if (!(ab > 0)) continue;
      const double rho = K(t, s) * share / root;
      const double sizes = square_(t, t) / (a * a) + square_(s, s) / (b * b) + 2 * sizes_(t, s) / ab;
      variance += share * (square_(t, s) / ab + rho * rho / 4 * sizes - rho * (crossed_(t, s) / a + crossed_(s, t) / b) / root);
      units += (1 - rho * rho) * (1 - rho * rho);
    }
    return units > 0 ? variance / units : 0;
  }

 private:
  Matrix square_, crossed_, sizes_;  // sums over the heads of K_ts^2, K_ts K_tt, K_tt K_ss
};

// The mean over heads of the attention weights: what they have in common.
class MeanWeights {
 public:
  // One head's, (T, L): of each token over its own sequence.
  void add(const Tensor<float>& a) {
    if (sum_.size() == 0) {
      sum_ = Matrix(a.rows(), a.cols());
      std::fill_n(sum_.data(), sum_.size(), 0.0);
    }
    stepzero::add(a, sum_);
    ++count_;
  }

  // The correlation of what two heads A and B make of the deviation E of values that they share, A E A' and B E B', where E is that of a
  // sample covariance of kernel V: the squared size of tokens under the mean weights, over that under a single head's, which is K.
  [[nodiscard]] double overlap(const Kernel& V, const Kernel& K) const {
    const Index length = sum_.cols();
    double alike = 0, whole = 0;
    for (Index t = 0; t < sum_.rows(); ++t) {
      const Index first = t / length * length;
      const double* a = sum_.view().row(t);
      double square = 0;
      for (Index j = 0; j < length; ++j) {
        if (a[j] != 0) square += a[j] * in_eight(0, length, [&](Index i) { return a[i] * V(first + j, first + i); });
      }
      square /= static_cast<double>(count_) * static_cast<double>(count_);
      alike += square * square;
      whole += K(t, t) * K(t, t);
    }
    return whole > 0 ? std::clamp(alike / whole, 0.0, 1.0) : 1;
  }

 private:
  Matrix sum_;
  Index count_ = 0;
};

}  // namespace stepzero
