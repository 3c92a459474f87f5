#pragma once
// What       Every channel, so many times in a row: the gate of a head, or of a token, before it meets all the channels it is for.
// Shapes     x (T, n); y (T, n times).
// Forward    y_t,(c times + j) = x_tc                                       (1)
// Backward   dx_tc = sum_j dy_t,(c times + j)                               (2)
// Push       K                                                              (3)
// Pull       G                                                              (4)
// Assumes    channels of dy uncorrelated
// Derived in docs/derivations/repeat.md
#include <algorithm>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Repeat {
  static constexpr const char* kind = "repeat";
  static constexpr Grade grade = Grade::large_width;
  static constexpr bool row_wise = true;
  Index width = 0;  // n
  Index times = 1;

  [[nodiscard]] int inputs() const { return 1; }
  [[nodiscard]] Index channels() const { return width * times; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }  // few channels, many times: no draws of kernels
  [[nodiscard]] std::vector<ParamShape> params() const { return {}; }

  template <class S>
  void forward(const Down<S>& p) const {
    parallel_ranges(p.y.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; ++c) std::fill_n(p.y.row(t) + c * times, times, p.x[0](t, c));  // (1)
      }
    });
  }

  template <class S>
  void backward(const Up<S>& p) const {
    if (!p.dx[0].wanted()) return;
    parallel_ranges(p.dy.rows, row_grain(channels()), [&](Index t0, Index t1) {
      for (Index t = t0; t < t1; ++t) {
        for (Index c = 0; c < width; ++c) {
          S sum = S(0);
          for (Index j = 0; j < times; ++j) sum += p.dy(t, c * times + j);
          store(p.dx[0], t, c, sum);  // (2)
        }
      }
    });
  }

  [[nodiscard]] Moment push(const PushDoor& p) const { return *p.x[0]; }                             // (3)
  [[nodiscard]] Pulled pull(const PullDoor& p) const { return {{Adjoint{p.dy.G, p.dy.tied}}, {}}; }  // (4)
};
static_assert(Op<Repeat>);

}  // namespace stepzero
