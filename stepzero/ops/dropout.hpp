#pragma once
// What       Each number is kept with probability 1 - p and then divided by 1 - p, else set to 0.
// Shapes     x, y, M (T, n); the mask M is a function of (batch seed, node, element), made again on the way up.
// Forward    Y = M o X,  M_tc = [u_tc >= p] / (1 - p),  u uniform on [0, 1)           (1)
// Backward   dX = M o dY                                                    (2)
// Push       L_ts = K_ts, the diagonal divided by 1 - p                     (3)
// Pull       H_ts = G_ts, the diagonal divided by 1 - p                     (4)
// Assumes    dy independent of the mask
// Derived in docs/derivations/dropout.md
#include "stepzero/core/philox.hpp"
#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Dropout {
  static constexpr const char* kind = "dropout";
  static constexpr Grade grade = Grade::exact;
  Index width = 0;
  double p = 0;
  std::uint32_t node = 0;  // tells the dropouts of one graph apart

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& d) const {
    mask(d.batch, d.x[0], Into<S>{d.y});  // (1)
  }

  template <class S>
  void backward(const Up<S>& d) const {
    if (d.dx[0].wanted()) mask(d.batch, d.dy, d.dx[0]);  // (2)
  }

  [[nodiscard]] Moment push(const PushDoor& d) const {
    Moment y = *d.x[0];
    y.K = divide_diagonal(y.K);  // (3)
    return y;
  }

  [[nodiscard]] Pulled pull(const PullDoor& d) const { return {{UpWire(divide_diagonal(d.dy.G))}, {}}; }  // (4)

 private:
  [[nodiscard]] Kernel divide_diagonal(const Kernel& K) const {
    return Kernel::from(K.tokens(), [&](Index t, Index s) { return t == s ? K(t, s) / (1 - p) : K(t, s); });
  }

  template <class S>
  void mask(const Batch& batch, View<const S> x, const Into<S>& y) const {
    const S factor = S(1 / (1 - p));
    const auto threshold = static_cast<std::uint64_t>(p * 4294967296.0);
    const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(batch.seed), static_cast<std::uint32_t>(batch.seed >> 32)};
    parallel_ranges(x.rows, row_grain(width), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; c += 4) {
          const auto draw = philox4x32_10({static_cast<std::uint32_t>(c), static_cast<std::uint32_t>(t), node, 0xD509u}, key);
          for (Index i = c; i < std::min(width, c + 4); ++i) {
            store(y, t, i, draw[static_cast<std::size_t>(i - c)] >= threshold ? factor * x(t, i) : S(0));
          }
        }
      }
    });
  }
};
static_assert(Op<Dropout>);

}  // namespace stepzero
