#pragma once
// What       A window moves over the tokens of a sequence. Each place is a matrix times what the window sees, or channel by channel a
//            weighted sum (depthwise); with size - 1 zeros before and none after it looks back only.
// Shapes     x (sequences T, n); y (sequences P, m), P = (T + before + after - size) / stride + 1; W (m, n size), or depthwise (n, size),
//            m = n; b (m). p(r, a) is the token under tap a of place r, where there is one.
// Forward    y_ro = b_o + sum_ca W_oca x_p(r,a),c                           (1)
//            depthwise: y_rc = b_c + sum_a W_ca x_p(r,a),c                  (2)
// Backward   dx_tc = sum of W_oca dy_ro over o and p(r, a) = t              (3)
//            dW_oca = sum_r dy_ro x_p(r,a),c,  db_o = sum_r dy_ro           (4)
// Push       L_rs = N E[w^2] sum_a K_p(r,a)p(s,a) + E[b^2],  N = n, or depthwise 1                          (5)
// Pull       H_tu = N E[w^2] sum of G_rs over a, p(r, a) = t, p(s, a) = u   (6)
//            E||dW||^2 = N sum_rs G_rs sum_a K_p(r,a)p(s,a),  E||db||^2 = sum_rs G_rs                       (7)
// Assumes    entries of W and b independent, those of W of zero mean
// Derived in docs/derivations/time_conv.md
#include <algorithm>

#include "stepzero/ops/linear.hpp"

namespace stepzero {

struct TimeConv {
  static constexpr const char* kind = "time_conv";
  static constexpr Grade grade = Grade::exact;
  Index in = 1;
  Index out = 1;
  Index size = 1;
  Index stride = 1;
  Index before = 0;
  Index after = 0;
  bool depthwise = false;
  bool bias = false;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return out; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] Index steps_after(Index length) const { return std::max<Index>((length + before + after - size) / stride + 1, 1); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    const Index fan = fan_in() * size;
    std::vector<ParamShape> list = {{depthwise ? out : out * in, size, fan, out}};
    if (bias) list.push_back({1, out, fan, out});
    return list;
  }

  template <class S>
  void forward(const Down<S>& p) const {
    if (depthwise) {
      each_tap(p.batch, p.y.rows, p.x[0].rows, [&](Index r, Index a, Index t) {
        for (Index c = 0; c < out; ++c) p.y(r, c) = (a < 0 ? S(0) : p.y(r, c) + p.theta[0](c, a) * p.x[0](t, c));  // (2)
      });
    } else {
      const Tensor<S> x = gather(p.batch, p.x[0], p.y.rows);
      gemm(Trans::no, Trans::yes, S(1), x.view(), matrix(p.theta[0]), S(0), p.y);  // (1)
    }
    if (bias) add_bias(p.theta[1], p.y);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (bias) sum_tokens(p.dy, p.dtheta[1]);  // (4)
    if (depthwise) return backward_each(p);
    if (const auto& dw = p.dtheta[0]; dw.wanted()) {
      const Tensor<S> x = gather(p.batch, p.x[0], p.dy.rows);
      gemm(Trans::yes, Trans::no, S(1), p.dy, x.view(), dw.beta(), View<S>(dw.d.data, out, in * size));  // (4)
    }
    if (!p.dx[0].wanted()) return;
    clear(p.dx[0]);
    Tensor<S> dx(p.dy.rows, in * size);
    gemm(Trans::no, Trans::no, S(1), p.dy, matrix(p.theta[0]), S(0), dx.view());  // (3)
    each_tap(p.batch, p.dy.rows, p.x[0].rows, [&](Index r, Index a, Index t) {
      for (Index c = 0; a >= 0 && c < in; ++c) p.dx[0].d(t, c) += dx(r, c * size + a);
    });
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    const DownWire& x = *p.x[0];
    const Index rows = p.batch.sequences * steps_after(x.K.tokens() / p.batch.sequences);
    DownWire y;
    const double b = bias ? p.theta[1].second_moment() : 0;
    y.K = met(p.batch, x.K, rows).scaled(static_cast<double>(fan_in()) * p.theta[0].second_moment()).shifted(b);  // (5)
    if (bias && p.theta[1].mean != 0) y.mean.assign(static_cast<std::size_t>(rows), p.theta[1].mean);
    y.f.noise = x.f.noise;
    y.f.drift = x.f.drift;
    y.f.sampling = depthwise ? x.f.sampling : 2;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Kernel& K = p.x[0]->K;
    const double n = static_cast<double>(fan_in());
    Matrix H(K.tokens(), K.tokens());
    std::fill_n(H.data(), H.size(), 0.0);
    each_pair(p.batch, p.dy.G.tokens(), K.tokens(), [&](Index r, Index s, Index t, Index u) { H(t, u) += p.dy.G(r, s); });
    Pulled up{{UpWire(Kernel(std::move(H)).scaled(n * p.theta[0].second_moment()))},  // (6)
              {n * frobenius(met(p.batch, K, p.dy.G.tokens()), p.dy.G)}};             // (7)
    if (bias) up.dtheta.push_back(p.dy.G.sum());
    return up;
  }

 private:
  [[nodiscard]] Index fan_in() const { return depthwise ? 1 : in; }
  template <class S>
  [[nodiscard]] View<const S> matrix(View<const S> w) const {
    return {w.data, out, in * size};
  }

  // p(r, a), or -1
  [[nodiscard]] Index token(Index sequences, Index places, Index rows, Index r, Index a) const {
    const Index length = rows / sequences, own = places / sequences;
    const Index t = r % own * stride + a - before;
    return t < 0 || t >= length ? -1 : r / own * length + t;
  }
  // body(r, -1, 0) begins a place, body(r, a, p(r, a)) follows for each tap that sees a token.
  template <class Body>
  void each_tap(const Batch& batch, Index places, Index rows, const Body& body) const {
    for (Index r = 0; r < places; ++r) {
      body(r, -1, 0);
      for (Index a = 0; a < size; ++a) {
        if (const Index t = token(batch.sequences, places, rows, r, a); t >= 0) body(r, a, t);
      }
    }
  }
  // body(r, s, p(r, a), p(s, a)) for all taps
  template <class Body>
  void each_pair(const Batch& batch, Index places, Index rows, const Body& body) const {
    for (Index a = 0; a < size; ++a) {
      for (Index r = 0; r < places; ++r) {
        const Index t = token(batch.sequences, places, rows, r, a);
        for (Index s = 0; t >= 0 && s < places; ++s) {
          if (const Index u = token(batch.sequences, places, rows, s, a); u >= 0) body(r, s, t, u);
        }
      }
    }
  }
  [[nodiscard]] Kernel met(const Batch& batch, const Kernel& K, Index places) const {
    Matrix sum(places, places);
    std::fill_n(sum.data(), sum.size(), 0.0);
    each_pair(batch, places, K.tokens(), [&](Index r, Index s, Index t, Index u) { sum(r, s) += K(t, u); });
    return Kernel(std::move(sum));
  }

  // What the window sees at each place, in the order of W's columns.
  template <class S>
  [[nodiscard]] Tensor<S> gather(const Batch& batch, View<const S> x, Index places) const {
    Tensor<S> seen(places, in * size);
    each_tap(batch, places, x.rows, [&](Index r, Index a, Index t) {
      if (a < 0) std::fill_n(seen.view().row(r), in * size, S(0));
      for (Index c = 0; a >= 0 && c < in; ++c) seen(r, c * size + a) = x(t, c);
    });
    return seen;
  }

  template <class S>
  void backward_each(const Up<S>& p) const {
    clear(p.dx[0]);
    clear(p.dtheta[0]);
    each_tap(p.batch, p.dy.rows, p.x[0].rows, [&](Index r, Index a, Index t) {
      for (Index c = 0; a >= 0 && c < out; ++c) {
        if (p.dx[0].wanted()) p.dx[0].d(t, c) += p.theta[0](c, a) * p.dy(r, c);      // (3)
        if (p.dtheta[0].wanted()) p.dtheta[0].d(c, a) += p.dy(r, c) * p.x[0](t, c);  // (4)
      }
    });
  }
};
static_assert(Op<TimeConv>);

}  // namespace stepzero
