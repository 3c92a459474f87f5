#pragma once
// A matrix with an adapter whose W is never made (ops/weightless.hpp): A and B are small, and real. The rest of the pass is
// independent of W given what W does to x, so W is drawn as without the adapter.
#include <utility>

#include "stepzero/ops/lora.hpp"
#include "stepzero/ops/weightless.hpp"

namespace stepzero {

struct WeightlessLora {
  LoraLinear op;
  WeightlessLinear base = {};

  template <class S>
  void forward(const Down<S>& p, const RowSpace& space) const {
    base.forward(Down<S>{p.batch, p.x, p.theta.first(op.first()), p.y, {}, p.first}, space);
    op.add_low_rank(p);
  }

  template <class S>
  std::vector<double> backward(const Up<S>& p, const RowSpace& space) const {
    const auto n = op.first();
    auto squares = base.backward(Up<S>{p.batch, p.x, p.theta.first(n), p.y, {}, p.dy, p.dx, p.dtheta.first(n), p.first}, space);
    op.pull_low_rank(p);
    return squares;
  }
};
static_assert(StandIn<WeightlessLora>);

inline WeightlessLora stand_in(const LoraLinear& op, std::vector<WeightlessLinear> matrices) {
  return {op, stand_in(op.base, std::move(matrices))};
}

}  // namespace stepzero
