#pragma once
// Small steps on the heads that an attention samples, and on sums over them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "stepzero/kernels/products.hpp"
#include "stepzero/ops/drawn_sums.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/op.hpp"
#include "stepzero/ops/rotary.hpp"

namespace stepzero {

// x with every token scaled by its size in `sizes` over that in `drawn`: a rotation leaves sizes as they are, so a drawn size only adds
// noise to the known one.
inline Kernel with_sizes(const Kernel& x, const Kernel& drawn, const Kernel& sizes) {
  std::vector<double> a;
  for (Index t = 0; t < drawn.tokens(); ++t) a.push_back(drawn(t, t) > 0 && sizes(t, t) > 0 ? std::sqrt(sizes(t, t) / drawn(t, t)) : 0);
  return Kernel::from(x.tokens(), [&](Index t, Index s) { return x(t, s) * a[t] * a[s]; });
}

// Where tokens are alike, what they differ by cancels to rounding, and may fall below 0: such a token has no gradient.
inline Kernel without_rounding(const Kernel& G) {
  bool fine = true;
  for (Index t = 0; t < G.tokens(); ++t) fine = fine && G(t, t) >= 0;
  if (fine) return G;
  return Kernel::from(G.tokens(), [&](Index t, Index s) { return G(t, t) > 0 && G(s, s) > 0 ? G(t, s) : 0; });
}

// One head after a rotation, or with direction -1 before it.
inline Tensor<float> turned(const Tensor<float>& x, const Rotary& rotary, const Batch& batch, double direction) {
  Rotary one = rotary;
  one.heads = 1;
  Tensor<float> out(x.rows(), x.cols());
  one.turn(batch, View<const float>(x), Into<float>{out.view()}, direction);
  return out;
}

// What queries are drawn from where it is not the kernel of v. Keys and values of latent attention come through a narrow wire, whose
// noise is neither in the queries nor in the keys' tails.
inline DownWire stem_of(const DownWire& q, const HeadNote& keys) {
  const auto& tail = keys.tail;
  DownWire m;
  m.K = tail ? tail->K : q.K;
  m.f.noise = tail ? tail->noise : q.shared_noise();
  m.f.token_drift = tail ? 0 : q.f.token_drift;
  if (!tail) m.f.jitter = q.f.jitter;
  m.f.swing = tail ? tail->swing : q.f.swing;
  return m;
}

// a o b
inline Tensor<float> by_entry(const Tensor<float>& a, const Tensor<float>& b) {
  Tensor<float> out(a.rows(), a.cols());
  hadamard(View<const float>(a), View<const float>(b), out.view());
  return out;
}

// Weights over the own sequence as weights over all tokens of the batch.
inline Tensor<float> whole(const Tensor<float>& weights, const Batch& batch) {
  Tensor<float> out(batch.tokens(), batch.tokens());
  std::fill_n(out.data(), out.size(), 0.0F);
  for (Index t = 0; t < batch.tokens(); ++t) std::copy_n(weights.view().row(t), batch.length, out.view().row(t) + (t - batch.position(t)));
  return out;
}

// The contrast: the squares of tokens less that of the mean token of their sequence, summed.
inline double spread(const Kernel& K, const Batch& batch) {
  double sum = K.trace();
  for (Index t = 0; t < K.tokens(); ++t) {
    const Index first = t - batch.position(t);
    for (Index s = first; s < first + batch.length; ++s) sum -= K(t, s) / static_cast<double>(batch.length);
  }
  return sum;
}

// x less the mean over the tokens of each sequence.
inline Tensor<float> centred(const Tensor<float>& x, const Batch& batch) {
  Tensor<float> out(x.rows(), x.cols());
  for (Index b = 0; b < batch.sequences; ++b) {
    const View<const float> from = x.view().slice(b * batch.length, batch.length);
    const View<float> to = out.view().slice(b * batch.length, batch.length);
    const std::vector<float> mean = mean_token(from);
    for (Index t = 0; t < batch.length; ++t) {
      for (Index c = 0; c < x.cols(); ++c) to(t, c) = from(t, c) - mean[c];
    }
  }
  return out;
}

}  // namespace stepzero
