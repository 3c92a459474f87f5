#pragma once
// The softmax of n scores s_j = q.k_j / sqrt(d_k) with normal q and k, where the variance of the scores is v: what its
// weights A_j are on average. Given q the scores are normal with variance v_q = v |q|^2 / E|q|^2, so that
//     E e^(a v_q) = M_a = (1 - 2 a v / d_k)^(-d_k/2)                                        e^(a v) for large d_k     (1)
// and, from the expansion of mean(e^2s) / mean(e^s)^2 in 1/n (at v = 1 and n = 512 the terms left out are 0.06 %),
//     E sum_j A_j^2   = (M_1 + (3 M_2 - M_1 - 2 M_3) / n
//                        + (3 M_6 - 16 M_4 + 21 M_3 - 9 M_2 + M_1) / n^2) / n                e^v / n                   (2)
//     ln n - E entropy = v/2 - (v M_1 / (1 - 2 v / d_k) - (M_1 - 1) / 2) / n                 v / 2                     (3)
#include <cmath>

#include "stepzero/claims/lab.hpp"

namespace stepzero::claims {

struct SoftmaxOfNormals {
  double v = 1;
  double n = 1;
  double head_dim = 64;

  [[nodiscard]] double grown(double a) const { return std::pow(1 - 2 * a * v / head_dim, -head_dim / 2); }  // (1)
  [[nodiscard]] double sum_squares() const {                                                                // (2)
    const double first = 3 * grown(2) - grown(1) - 2 * grown(3);
    const double second = 3 * grown(6) - 16 * grown(4) + 21 * grown(3) - 9 * grown(2) + grown(1);
    return (grown(1) + (first + second / n) / n) / n;
  }
  [[nodiscard]] double entropy_lost() const { return v / 2 - (v * grown(1) / (1 - 2 * v / head_dim) - (grown(1) - 1) / 2) / n; }  // (3)
};

// An attention over n tokens, all of which see each other, whose scores have variance v.
inline int add_attention(Lab& lab, double v, Index heads, Index head_dim, Index value_dim) {
  const int q = lab.source(heads * head_dim, Distribution::normal(std::sqrt(v)));
  const int k = lab.source(heads * head_dim, Distribution::normal(1));
  const int values = lab.source(heads * value_dim, Distribution::normal(1));
  return lab.add(Attention{.heads = heads,
                           .kv_heads = heads,
                           .key_dim = head_dim,
                           .value_dim = value_dim,
                           .scale = 1 / std::sqrt(static_cast<double>(head_dim)),
                           .causal = false},
                 {q, k, values});
}

}  // namespace stepzero::claims
