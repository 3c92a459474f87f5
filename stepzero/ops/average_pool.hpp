#pragma once
// What       y_r is the mean of what a moving window sees, channel by channel; padding counts as 0.
// Shapes     x (images side^2, n); y (images places, n). The window has k taps; p(r, a) is the pixel under tap a of place r.
// Forward    y_r = sum_a x_{p(r,a)} / k                                     (1)
// Backward   dx_p = sum over taps a and places r with p(r, a) = p of dy_r / k                               (2)
// Push       L_rs = sum_ab K_{p(r,a) p(s,b)} / k^2                          (3)
// Pull       H_pq = sum_ab G_rs / k^2, over places r, s with p(r, a) = p, p(s, b) = q                       (4)
// Assumes    nothing
// Derived in docs/derivations/average_pool.md
#include "stepzero/ops/op.hpp"
#include "stepzero/ops/window.hpp"

namespace stepzero {

struct AveragePool {
  static constexpr const char* kind = "average_pool";
  static constexpr Grade grade = Grade::exact;
  Window window;
  Index width = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index places() const { return window.places(); }
  [[nodiscard]] Index pixels() const { return window.pixels(); }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    average(p.x[0], {p.y}, places(), pixels(), [&](Index place, Index tap) { return window.pixel(place, tap); });  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    average(p.dy, p.dx[0], pixels(), places(), [&](Index pixel, Index tap) { return window.place(pixel, tap); });  // (2)
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    const DownWire& x = *p.x[0];
    const Meetings m = pixels_of_places(window, p.batch.sequences);
    const double k = static_cast<double>(window.taps());
    DownWire y;
    y.K = sum_over_pairs(x.K, m).scaled(1 / (k * k));  // (3)
    y.mean.assign(static_cast<std::size_t>(m.cols()), 0.0);
    for (Index tap = 0; tap < m.rows(); ++tap) {
      for (Index r = 0; r < m.cols(); ++r) y.mean[static_cast<std::size_t>(r)] += m(tap, r) < 0 ? 0 : x.mean_at(m(tap, r)) / k;
    }
    y.f.noise = x.f.noise;
    y.f.drift = x.f.drift;
    y.f.sampling = x.f.sampling;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const double k = static_cast<double>(window.taps());
    return {{UpWire(sum_over_pairs(p.dy.G, places_of_pixels(window, p.batch.sequences)).scaled(1 / (k * k)))}, {}};  // (4)
  }

 private:
  // Each row of `to`, of which an image has `own`, gathers the rows it meets, of which an image has `other`.
  template <class S, class Meet>
  void average(View<const S> from, const Into<S>& to, Index own, Index other, const Meet& meet) const {
    const S share = S(1 / static_cast<double>(window.taps()));
    parallel_ranges(to.d.rows, row_grain(width * window.taps()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        S* row = to.d.row(t);
        if (!to.add) std::fill_n(row, width, S(0));
        for (Index tap = 0; tap < window.taps(); ++tap) {
          const Index met = meet(t % own, tap);
          if (met < 0) continue;
          const S* x = from.row(t / own * other + met);
          for (Index c = 0; c < width; ++c) row[c] += share * x[c];
        }
      }
    });
  }
};
static_assert(Op<AveragePool>);

}  // namespace stepzero
