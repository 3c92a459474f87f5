#pragma once
// What       A learned row for each sequence, the same for all: the one query of a pooling by attention.
// Shapes     y (sequences, n); p (n).
// Forward    y_s = p                                                        (1)
// Backward   dp = sum_s dy_s                                                (2)
// Push       K_rs = E[p^2]                                                  (3)
// Pull       E||dp||^2 = sum_rs G_rs                                        (4)
// Assumes    p of zero mean
// Derived in docs/derivations/probe.md
#include <algorithm>

#include "stepzero/ops/linear.hpp"

namespace stepzero {

struct Probe {
  static constexpr const char* kind = "probe";
  static constexpr Grade grade = Grade::exact;
  Index width = 1;

  [[nodiscard]] int inputs() const { return 0; }
  [[nodiscard]] Index channels() const { return width; }
  [[nodiscard]] Index places() const { return 1; }
  [[nodiscard]] Index keep() const { return 0; }
  [[nodiscard]] std::optional<ChannelLaw> channel_law() const { return {}; }
  [[nodiscard]] std::vector<ParamShape> params() const { return {{1, width, 1, width}}; }

  template <class S>
  void forward(const Down<S>& p) const {
    for (Index s = 0; s < p.y.rows; ++s) std::copy_n(p.theta[0].row(0), width, p.y.row(s));  // (1)
  }

  template <class S>
  void backward(const Up<S>& p) const {
    sum_tokens(p.dy, p.dtheta[0]);  // (2)
  }

  [[nodiscard]] Moment push(const PushDoor& p) const {
    return {.K = Kernel::from(p.batch.sequences, [&](Index, Index) { return p.theta[0].second_moment(); })};  // (3)
  }

  [[nodiscard]] Pulled pull(const PullDoor& p) const { return {{}, {p.dy.G.sum()}}; }  // (4)
};
static_assert(Op<Probe>);

}  // namespace stepzero
