#pragma once
// What       y_t = (W + c B A) x_t + b: a matrix with a trainable low-rank neighbour, c = alpha / rank.
// Shapes     x (T, n); y (T, m); W (m, n); A (r, n); B (m, r); b (m); H (T, r).
// Forward    H = X A'                                                       (1)
//            Y = X W' + c H B' + 1 b'                                       (2)
// Backward   dH = c dY B                                                    (3)
//            dX = dY W + dH A                                               (4)
//            dW = dY' X,  dA = dH' X,  dB = c dY' H                         (5)
//            db = dY' 1                                                     (6)
// Push       L_ts = n (E[w^2] + c^2 r E[b^2] E[a^2]) K_ts + E[bias^2]       (7)
// Pull       H_ts = n (E[w^2] + c^2 r E[b^2] E[a^2]) G_ts                   (8)
//            E||dW||^2 = n <K, G>,  E||dA||^2 = c^2 r n E[b^2] <K, G>,  E||dB||^2 = c^2 r n E[a^2] <K, G>         (9)
// Assumes    W, A, B independent of each other, of x and of dy, entries of zero mean
// Derived in docs/derivations/lora.md
#include "stepzero/ops/linear.hpp"

namespace stepzero {

struct LoraLinear {
  static constexpr const char* kind = "lora_linear";
  static constexpr Grade grade = Grade::exact;
  static constexpr Remake remake = Remake::always;
  Index in = 0;
  Index out = 0;
  Index rank = 1;
  double alpha = 1;
  bool bias = false;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return out; }
  [[nodiscard]] Index keep() const { return rank; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return ChannelLaw{.gaussian = true}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list = {{out, in, in, out}, {rank, in, in, rank}, {out, rank, rank, out}};
    if (bias) list.push_back({1, out, in, out});
    return list;
  }
  [[nodiscard]] double scale() const { return alpha / static_cast<double>(rank); }

  template <class S>
  void forward(const Down<S>& p) const {
    gemm(Trans::no, Trans::yes, S(1), p.x[0], p.theta[1], S(0), p.keep);  // (1)
    gemm(Trans::no, Trans::yes, S(1), p.x[0], p.theta[0], S(0), p.y);
    gemm(Trans::no, Trans::yes, S(scale()), View<const S>(p.keep), p.theta[2], S(1), p.y);  // (2)
    if (bias) add_bias(p.theta[3], p.y);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    Tensor<S> dh(p.dy.rows, rank);
    gemm(Trans::no, Trans::no, S(scale()), p.dy, p.theta[2], S(0), dh.view());  // (3)
    const View<const S> dh_view = dh.view();
    if (const auto& dx = p.dx[0]; dx.wanted()) {
      gemm(Trans::no, Trans::no, S(1), p.dy, p.theta[0], dx.beta(), dx.d);  // (4)
      gemm(Trans::no, Trans::no, S(1), dh_view, p.theta[1], S(1), dx.d);
    }
    product(S(1), p.dy, p.x[0], p.dtheta[0]);  // (5)
    product(S(1), dh_view, p.x[0], p.dtheta[1]);
    product(S(scale()), p.dy, p.keep, p.dtheta[2]);
    if (bias) sum_tokens(p.dy, p.dtheta[3]);  // (6)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    return push_matrix(*p.x[0], gain(p.theta), static_cast<double>(in), p.theta[0], bias ? p.theta[3] : Law{});  // (7)
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double inner = static_cast<double>(in) * frobenius(p.x[0]->K, p.dy.G);
    const double low = scale() * scale() * static_cast<double>(rank);
    Pulled up{{UpWire(p.dy.G.scaled(gain(p.theta)))},                                                        // (8)
              {inner, low * p.theta[2].second_moment() * inner, low * p.theta[1].second_moment() * inner}};  // (9)
    if (bias) up.dtheta.push_back(p.dy.G.sum());
    return up;
  }

 private:
  [[nodiscard]] double gain(std::span<const Law> theta) const {
    const double low = scale() * scale() * static_cast<double>(rank) * theta[1].second_moment() * theta[2].second_moment();
    return static_cast<double>(in) * (theta[0].second_moment() + low);
  }

  template <class S>
  static void product(S a, View<const S> dy, View<const S> x, const Into<S>& dw) {
    if (dw.wanted()) gemm(Trans::yes, Trans::no, a, dy, x, dw.beta(), dw.d);
  }
};
static_assert(Op<LoraLinear>);

}  // namespace stepzero
