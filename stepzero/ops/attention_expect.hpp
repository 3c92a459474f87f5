#pragma once
// The mean Gram matrices of the gradients of q and k of one head: its weights, queries and keys are given, the gradient of its output is
// a Gaussian field.
#include <span>

#include "stepzero/core/view.hpp"

namespace stepzero {

// A head over all tokens of the batch.
struct GivenHead {
  Tensor<float> a;  // (T, T) weights, 0 for keys that a token does not see
  Tensor<float> b;  // the same times the slope of the softcap; empty: there is none
  const Tensor<float>& q;
  const Tensor<float>& k;
  float scale;
};

// gq = E[dq dq'] and gk = E[dk dk'], (T, T) each, where G is the Gram matrix of the gradient of the head's output and V that of its
// values; a part that all values share makes no difference and may be left out.
// dA = R Z F' with R R' = G, F F' = V, Z iid, goes through the softmax, P_t = diag(b_t) - b_t a_t':
//
//     gq_ts = c^2 G_ts tr(P_t V P_s' K),           K = k k'
//     gk    = c^2 sum_ts H_ts P_t V P_s',          H = (q q') o G
void expected_grams(const GivenHead& head, const Tensor<float>& V, const Tensor<float>& G, Tensor<float>& gq, Tensor<float>& gk);

// The correction where a norm behind has removed the gradient's part along o_t, the output of all heads together:
//
//     Cov dA_t = G_tt (V - (1 - along) V a_t a_t' V / |o_t|^2),    |o_t|^2 = a_t' V a_t + others_t
//
// where V is the Gram matrix of the values, with the part that they share. Products of different tokens are not corrected.
void take_out_along(const GivenHead& head, const Tensor<float>& V, double along, std::span<const double> others, const Tensor<float>& G,
                    Tensor<float>& gq, Tensor<float>& gk);

}  // namespace stepzero
