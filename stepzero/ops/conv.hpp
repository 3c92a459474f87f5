#pragma once
// What       A convolution: each place of a moving window sees its pixels through one matrix, the same at every place.
// Shapes     x (images side^2, n); y (images places, m); W (m, n/g, size, size), b (m). The channels are in g groups; those of
//            a group are made of the same group's. s_r ((n/g) size^2) is what place r sees of a group, 0 where it sees padding;
//            p(r, a) is the pixel under its tap a.
// Forward    y_r = W s_r + b, group by group                                (1)
// Backward   dx_p = sum over taps a and places r with p(r, a) = p of W_a' dy_r                              (2)
//            dW = sum_r dy_r s_r'                                           (3)
//            db = sum_r dy_r                                                (4)
// Push       L_rs = (n/g) E[w^2] sum_a K_{p(r,a) p(s,a)} + E[b^2]           (5)
// Pull       H_pq = (n/g) E[w^2] sum_a G_rs, over places r, s with p(r, a) = p, p(s, a) = q                 (6)
//            E||dW||^2 = (n/g) sum_rs G_rs sum_a K_{p(r,a) p(s,a)},  E||db||^2 = sum_rs G_rs                (7)
// Assumes    W independent of x and dy, entries of zero mean
// Derived in docs/derivations/conv.md
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/window.hpp"

namespace stepzero {

struct Conv {
  static constexpr const char* kind = "conv";
  static constexpr Grade grade = Grade::exact;
  Window window;
  Index in = 1;
  Index out = 1;
  bool bias = false;
  Index groups = 1;  // divides in and out

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return out; }
  [[nodiscard]] Index places() const { return window.places(); }
  [[nodiscard]] Index pixels() const { return window.pixels(); }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] Index fan_in() const { return in / groups * window.taps(); }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const {
    std::vector<ParamShape> list = {{out, fan_in(), fan_in(), out * window.taps()}};
    if (bias) list.push_back({1, out, fan_in(), out});
    return list;
  }

  template <class S>
  void forward(const Down<S>& p) const {
    Tensor<S> seen(places(), in * window.taps());
    for (Index i = 0; i < p.batch.sequences; ++i) {
      look(p.x[0].slice(i * pixels(), pixels()), seen.view());
      const View<S> y = p.y.slice(i * places(), places());
      for (Index g = 0; g < groups; ++g) gemm(Trans::no, Trans::yes, S(1), group_in(seen, g), rows(p.theta[0], g), S(0), own(y, g));  // (1)
    }
    if (bias) add_bias(p.theta[1], p.y);
  }

  template <class S>
  void backward(const Up<S>& p) const {
    Tensor<S> seen(places(), in * window.taps());
    for (Index i = 0; i < p.batch.sequences; ++i) {
      const View<const S> dy = p.dy.slice(i * places(), places());
      if (const auto& dx = p.dx[0]; dx.wanted()) {
        for (Index g = 0; g < groups; ++g) {
          gemm(Trans::no, Trans::no, S(1), own(dy, g), rows(p.theta[0], g), S(0), seen.view().columns(g * fan_in(), fan_in()));
        }
        give_back(seen, {dx.d.slice(i * pixels(), pixels()), dx.add});  // (2)
      }
      const auto& dw = p.dtheta[0];
      if (!dw.wanted()) continue;
      look(p.x[0].slice(i * pixels(), pixels()), seen.view());
      const S beta = i == 0 ? dw.beta() : S(1);
      for (Index g = 0; g < groups; ++g) gemm(Trans::yes, Trans::no, S(1), own(dy, g), group_in(seen, g), beta, rows(dw.d, g));  // (3)
    }
    if (bias) sum_tokens(p.dy, p.dtheta[1]);  // (4)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    Moment seen = *p.x[0];
    seen.K = mean_over_taps(p.x[0]->K, p.batch);
    const double n = static_cast<double>(fan_in());
    return push_matrix(seen, n * p.theta[0].second_moment(), n, p.theta[0], bias ? p.theta[1] : Law{});  // (5)
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Index inputs = in / groups;
    const double gain = static_cast<double>(inputs) * p.theta[0].second_moment();
    Pulled up{{UpWire(sum_over_taps(p.dy.G, places_of_pixels(window, p.batch.sequences)).scaled(gain))}, {}};  // (6)
    const double overlap = frobenius(mean_over_taps(p.x[0]->K, p.batch), p.dy.G);
    up.dtheta.push_back(static_cast<double>(fan_in()) * overlap);  // (7)
    if (bias) up.dtheta.push_back(p.dy.G.sum());
    return up;
  }

 private:
  [[nodiscard]] Kernel mean_over_taps(const Kernel& K, const Batch& batch) const {
    return sum_over_taps(K, pixels_of_places(window, batch.sequences)).scaled(1 / static_cast<double>(window.taps()));
  }
  template <class S>
  [[nodiscard]] View<S> own(View<S> y, Index g) const {
    return y.columns(g * (out / groups), out / groups);
  }
  template <class S>
  [[nodiscard]] View<S> rows(View<S> w, Index g) const {
    return w.slice(g * (out / groups), out / groups);
  }
  template <class S>
  [[nodiscard]] View<const S> group_in(const Tensor<S>& seen, Index g) const {
    return seen.view().columns(g * fan_in(), fan_in());
  }

  // Row r: what place r of one image sees, channel by channel and tap by tap, in the order of W.
  template <class S>
  void look(View<const S> x, View<S> seen) const {
    const Index taps = window.taps();
    parallel_ranges(seen.rows, row_grain(seen.cols), [&](Index r0, Index r1) {
      for (Index r = r0; r < r1; ++r) {
        for (Index tap = 0; tap < taps; ++tap) {
          const Index pixel = window.pixel(r, tap);
          S* to = seen.row(r) + tap;
          for (Index c = 0; c < in; ++c) to[c * taps] = pixel < 0 ? S(0) : x(pixel, c);
        }
      }
    });
  }

  // The transpose: every pixel gathers from the places that saw it.
  template <class S>
  void give_back(const Tensor<S>& seen, const Into<S>& dx) const {
    const Index taps = window.taps();
    parallel_ranges(dx.d.rows, row_grain(in * taps), [&](Index p0, Index p1) {
      for (Index p = p0; p < p1; ++p) {
        S* to = dx.d.row(p);
        if (!dx.add) std::fill_n(to, in, S(0));
        for (Index tap = 0; tap < taps; ++tap) {
          const Index place = window.place(p, tap);
          if (place < 0) continue;
          const S* from = seen.view().row(place) + tap;
          for (Index c = 0; c < in; ++c) to[c] += from[c * taps];
        }
      }
    });
  }
};
static_assert(Op<Conv>);

}  // namespace stepzero
