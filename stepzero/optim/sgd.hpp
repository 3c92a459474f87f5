#pragma once
// Stochastic gradient descent. With momentum m (as torch.optim.SGD has it: the first buffer is the gradient)
//
//     b = m b + g,    w = (1 - rate decay) w - rate u,    u = b, or g + m b (Nesterov)
#include "stepzero/optim/turn.hpp"
#include "stepzero/optim/update_rows.hpp"

namespace stepzero {

struct Sgd {
  static constexpr const char* name = "sgd";
  double momentum = 0;
  bool nesterov = false;

  [[nodiscard]] int memories() const { return momentum != 0 ? 1 : 0; }

  template <class S>
  void update(const Turn<S>& t) const {
    const SgdNumbers<S> n{S(1 - t.rate.rate * t.rate.decay), S(t.rate.rate), S(t.shrink), S(momentum), nesterov};
    S* buffer = momentum != 0 ? t.memory[0].data() : nullptr;
    by_pieces(t, [&](Index first, Index count) {
      sgd_row(t.w.data + first, t.g.data + first, buffer == nullptr ? nullptr : buffer + first, count, n);
    });
  }
};

}  // namespace stepzero
