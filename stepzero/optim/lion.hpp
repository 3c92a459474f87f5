#pragma once
// Lion: Chen et al. 2023. The sign of a short average, and a long one that is remembered; sign(0) = 0.
//
//     w = (1 - rate decay) w - rate sign(b1 m + (1 - b1) g),    m = b2 m + (1 - b2) g
#include "stepzero/optim/turn.hpp"
#include "stepzero/optim/update_rows.hpp"

namespace stepzero {

struct Lion {
  static constexpr const char* name = "lion";
  double beta1 = 0.9;
  double beta2 = 0.99;

  [[nodiscard]] int memories() const { return 1; }

  template <class S>
  void update(const Turn<S>& t) const {
    const LionNumbers<S> n{S(1 - t.rate.rate * t.rate.decay), S(t.rate.rate), S(t.shrink), S(beta1), S(1 - beta1), S(beta2), S(1 - beta2)};
    S* m = t.memory[0].data();
    by_pieces(t, [&](Index first, Index count) { lion_row(t.w.data + first, t.g.data + first, m + first, count, n); });
  }
};

}  // namespace stepzero
