#include "stepzero/ops/attention_expect.hpp"

#include <cmath>

#include "stepzero/kernels/rows.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

namespace {

using Square = Tensor<float>;

// f(i) for every entry
template <class F>
Square entries(Index n, const F& f) {
  Square out(n, n);
  float* const to = out.data();
  for (Index i = 0; i < n * n; ++i) to[i] = f(i);
  return out;
}

}  // namespace

void expected_grams(const GivenHead& head, const Square& V, const Square& G, Square& gq, Square& gk) {
  constexpr Trans no = Trans::no, yes = Trans::yes;
  const Index n = G.rows();
  const float c = head.scale * head.scale;
  const Square &A = head.a, &B = head.b.size() > 0 ? head.b : head.a;
  // (P_t V P_s')_jl = b_tj b_sl (V_jl - (V a_s)_j - (V a_t)_l + a_t' V a_s)
  const Square K = product(no, yes, head.k, head.k);
  const Square VA = product(no, yes, V, A), KB = product(no, yes, K, B);  // column s: V a_s, K b_s
  const Square AVA = product(no, no, A, VA), BKB = product(no, no, B, KB);
  const Square both = product(no, yes, entries(n, [v = V.data(), k = K.data()](Index i) { return v[i] * k[i]; }), B);
  const Square half =
      product(no, no, B, entries(n, [x = both.data(), v = VA.data(), k = KB.data()](Index i) { return x[i] / 2 - v[i] * k[i]; }));
  for (Index t = 0; t < n; ++t) {
    for (Index s = 0; s < n; ++s) gq(t, s) = c * G(t, s) * (half(t, s) + half(s, t) + AVA(t, s) * BKB(t, s));
  }
  const Square Q = product(no, yes, head.q, head.q);
  const Square H = entries(n, [q = Q.data(), g = G.data()](Index i) { return q[i] * g[i]; });
  const Square BH = product(yes, no, B, H);
  const Square seen = product(no, no, BH, B);
  const Square means = product(yes, no, B, entries(n, [h = H.data(), v = AVA.data()](Index i) { return h[i] * v[i]; }));
  const Square rest =
      product(no, no, entries(n, [m = means.data(), h = BH.data(), v = VA.data()](Index i) { return m[i] / 2 - h[i] * v[i]; }), B);
  for (Index j = 0; j < n; ++j) {
    for (Index l = 0; l < n; ++l) gk(j, l) = c * (V(j, l) * seen(j, l) + rest(j, l) + rest(l, j));
  }
}

void take_out_along(const GivenHead& head, const Square& V, double along, std::span<const double> others, const Square& G, Square& gq,
                    Square& gk) {
  const Index n = G.rows(), dk = head.k.cols();
  const float c = head.scale * head.scale;
  const Square &A = head.a, &B = head.b.size() > 0 ? head.b : head.a;
  Square W = product(Trans::no, Trans::no, A, V);  // row t: P_t V a_t
  std::vector<float> less(static_cast<std::size_t>(n));
  for (Index t = 0; t < n; ++t) {
    float* const w = W.view().row(t);
    const float *a = A.view().row(t), *b = B.view().row(t);
    const float own = row_sum<float>(n, [&](Index i) { return a[i] * w[i]; });
    for (Index i = 0; i < n; ++i) w[i] = b[i] * (w[i] - own);
    const double size = static_cast<double>(own) + others[static_cast<std::size_t>(t)];
    less[static_cast<std::size_t>(t)] = size > 0 ? static_cast<float>((1 - along) / size) * c * G(t, t) : 0;
  }
  const Tensor<float> toward = product(Trans::no, Trans::no, W, head.k);
  for (Index t = 0; t < n; ++t) {
    const float part = less[static_cast<std::size_t>(t)];
    gq(t, t) -= part * dot_row(toward.view().row(t), toward.view().row(t), dk);
    const float root = std::sqrt(part * dot_row(head.q.view().row(t), head.q.view().row(t), dk));
    for (float* w = W.view().row(t); float& x : std::span(w, static_cast<std::size_t>(n))) x *= root;
  }
  const Square taken = product(Trans::yes, Trans::no, W, W);
  for (Index i = 0; i < n * n; ++i) gk.data()[i] -= taken.data()[i];
}

}  // namespace stepzero
