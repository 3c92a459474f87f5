#pragma once
// What reaches q and k of one head, in the mean over the gradients that may come: its weights, queries and keys are given, the
// gradient of its output is a Gaussian field.
#include <span>

#include "stepzero/core/view.hpp"

namespace stepzero {

// A head over all tokens of the batch.
struct GivenHead {
  Tensor<float> a;  // (T, T) weights, 0 where a token does not look
  Tensor<float> b;  // the same times the slope of the softcap; empty: there is none
  const Tensor<float>& q;
  const Tensor<float>& k;
  float scale;
};

// gq = E[dq dq'] and gk = E[dk dk'], (T, T) each, where G is the Gram matrix of the gradient of the head's output and V that of its
// values: what all of them share may be left out.
// dA = R Z F' with R R' = G, F F' = V, Z iid, goes through the softmax, P_t = diag(b_t) - b_t a_t':
//
//     gq_ts = c^2 G_ts tr(P_t V P_s' K),           K = k k'
//     gk    = c^2 sum_ts H_ts P_t V P_s',          H = (q q') o G
void expected_grams(const GivenHead& head, const Tensor<float>& V, const Tensor<float>& G, Tensor<float>& gq, Tensor<float>& gk);

// Less what they have of a gradient that cannot lie along the output of all heads together, o_t: a norm behind takes that out.
//
//     Cov dA_t = G_tt (V - (1 - along) V a_t a_t' V / |o_t|^2),    |o_t|^2 = a_t' V a_t + others_t
//
// where V is the Gram matrix of the values as they are: nothing may be left out. Between tokens it is left as it is.
void take_out_along(const GivenHead& head, const Tensor<float>& V, double along, std::span<const double> others, const Tensor<float>& G,
                    Tensor<float>& gq, Tensor<float>& gk);

}  // namespace stepzero
