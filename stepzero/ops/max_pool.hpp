#pragma once
// What       y_r is the largest of what a moving window sees, channel by channel; padding is never the largest.
// Shapes     x (images side^2, n); y (images places, n). p(r, a) is the pixel under tap a of place r.
// Forward    a*(r) = the first tap a with the largest x_{p(r,a)}            (1)
//            y_r = x_{p(r,a*)}                                              (2)
// Backward   dx_p = sum over taps a and places r with p(r, a) = p of [a = a*(r)] dy_r                       (3)
// Push       L_rs = E y_r y_s                                               (4)
// Pull       H_pq = sum over taps a, b and places r, s with p(r, a) = p, p(s, b) = q of
//            P(a*(r) = a, a*(s) = b) G_rs                                   (5)
//            before a function f that made x of u: with E[a*(r) = a][a*(s) = b] f'(u_p) f'(u_q) for the probability  (6)
// Assumes    the channels of x, or those that a function made them of, Gaussian; dy independent of x
// Derived in docs/derivations/max_pool.md
#include "stepzero/ops/op.hpp"
#include "stepzero/ops/window.hpp"

namespace stepzero {

struct MaxPool {
  static constexpr const char* kind = "max_pool";
  static constexpr Grade grade = Grade::sampled;
  Window window;  // its padding at most half its size: every place sees a pixel
  Index width = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index places() const { return window.places(); }
  [[nodiscard]] Index pixels() const { return window.pixels(); }
  [[nodiscard]] Index keep() const { return width; }  // a* of each channel
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(width * window.taps()), [&](Index r0, Index r1) {
      for (Index r = r0; r < r1; ++r) {
        S* best = p.keep.row(r);
        S* y = p.y.row(r);
        std::fill_n(best, width, S(-1));
        for (Index tap = 0; tap < window.taps(); ++tap) {
          const Index pixel = window.pixel(r % places(), tap);
          if (pixel < 0) continue;
          const S* x = p.x[0].row(r / places() * pixels() + pixel);
          for (Index c = 0; c < width; ++c) {
            if (!(best[c] < S(0)) && (x[c] <= y[c] || y[c] != y[c])) continue;  // NaN is the largest
            best[c] = S(static_cast<double>(tap));                              // (1)
            y[c] = x[c];                                                        // (2)
          }
        }
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    const auto& dx = p.dx[0];
    if (!dx.wanted()) return;
    parallel_ranges(dx.d.rows, row_grain(width * window.taps()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        S* to = dx.d.row(t);
        if (!dx.add) std::fill_n(to, width, S(0));
        for (Index tap = 0; tap < window.taps(); ++tap) {
          const Index place = window.place(t % pixels(), tap);
          if (place < 0) continue;
          const Index r = t / pixels() * places() + place;
          const S* best = p.keep.row(r);
          const S* dy = p.dy.row(r);
          for (Index c = 0; c < width; ++c) to[c] += best[c] == S(static_cast<double>(tap)) ? dy[c] : S(0);  // (3)
        }
      }
    });
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const;
  [[nodiscard]] Pulled pull(const PullDoor& p) const;
};
static_assert(Op<MaxPool>);

}  // namespace stepzero
