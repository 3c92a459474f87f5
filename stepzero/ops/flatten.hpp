#pragma once
// What       All pixels of an image become the channels of one row.
// Shapes     x (images P, n); y (images, n P), P = side^2.
// Forward    y_{i, cP + p} = x_{iP + p, c}                                  (1)
// Backward   dx_{iP + p, c} = dy_{i, cP + p}                                (2)
// Push       L_ij = sum_p K_{iP + p, jP + p} / P                            (3)
// Pull       H_{iP + p, jP + p} = G_ij / P, and 0 between different pixels  (4)
// Assumes    the channels of dy uncorrelated and equally large, as a matrix leaves them
// Derived in docs/derivations/flatten.md
#include "stepzero/ops/op.hpp"
#include "stepzero/ops/window.hpp"

namespace stepzero {

struct Flatten {
  static constexpr const char* kind = "flatten";
  static constexpr Grade grade = Grade::exact;
  Index side = 1;
  Index width = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index pixels() const { return side * side; }
  [[nodiscard]] Index places() const { return 1; }
  [[nodiscard]] Index channels() const { return width * pixels(); }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index t = 0; t < p.x[0].rows; ++t) {
      for (Index c = 0; c < width; ++c) p.y(t / pixels(), c * pixels() + t % pixels()) = p.x[0](t, c);  // (1)
    }
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    for (Index t = 0; t < p.x[0].rows; ++t) {
      for (Index c = 0; c < width; ++c) store(p.dx[0], t, c, p.dy(t / pixels(), c * pixels() + t % pixels()));  // (2)
    }
  }

  [[nodiscard]] DownWire push(const PushDoor& p) const {
    const DownWire& x = *p.x[0];
    const double n = static_cast<double>(pixels());
    DownWire y;
    y.K = sum_over_taps(x.K, pixels_of_places(whole(), p.batch.sequences)).scaled(1 / n);  // (3)
    y.mean.assign(static_cast<std::size_t>(p.batch.sequences), 0.0);
    for (Index t = 0; t < x.K.tokens(); ++t) y.mean[static_cast<std::size_t>(t / pixels())] += x.mean_at(t) / n;
    y.f.noise = x.f.noise;
    y.f.drift = x.level();  // the same numbers: the same mean square
    y.f.sampling = 0;
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const {
    const Kernel H = sum_over_taps(p.dy.G, places_of_pixels(whole(), p.batch.sequences));
    return {{UpWire(H.scaled(1 / static_cast<double>(pixels())))}, {}};  // (4)
  }

 private:
  // One window as large as the image: its taps are the pixels.
  [[nodiscard]] Window whole() const { return {.side = side, .size = side}; }
};
static_assert(Op<Flatten>);

}  // namespace stepzero
