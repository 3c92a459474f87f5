#pragma once
// AdamW: Loshchilov and Hutter 2019. In update t, counted from 1,
//
//     m = b1 m + (1 - b1) g,    v = b2 v + (1 - b2) g^2
//     w = (1 - rate decay) w - rate m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
#include <cmath>

#include "stepzero/optim/turn.hpp"
#include "stepzero/optim/update_rows.hpp"

namespace stepzero {

struct AdamW {
  static constexpr const char* name = "adamw";
  double beta1 = 0.9;
  double beta2 = 0.999;

  [[nodiscard]] int memories() const { return 2; }

  template <class S>
  void update(const Turn<S>& t) const {
    const double count = static_cast<double>(t.updates + 1);
    const double unbias1 = 1 - std::pow(beta1, count), unbias2 = std::sqrt(1 - std::pow(beta2, count));
    const AdamNumbers<S> n{.kept = S(1 - t.rate.rate * t.rate.decay),
                           .size = S(t.rate.rate / unbias1),
                           .shrink = S(t.shrink),
                           .beta1 = S(beta1),
                           .fresh1 = S(1 - beta1),
                           .beta2 = S(beta2),
                           .fresh2 = S(1 - beta2),
                           .unbias2 = S(unbias2),
                           .eps = S(t.rate.eps)};
    S* m = t.memory[0].data();
    S* v = t.memory[1].data();
    by_pieces(t, [&](Index first, Index count_here) { adam_row(t.w.data + first, t.g.data + first, m + first, v + first, count_here, n); });
  }
};

}  // namespace stepzero
