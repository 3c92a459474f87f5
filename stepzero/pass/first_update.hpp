#pragma once
// The first update of an optimizer, whose memory is still empty: of a tensor that is there, and of a matrix that is not
// (ops/weightless_step.hpp).
#include <span>

#include "stepzero/ops/weightless_step.hpp"
#include "stepzero/optim/optimizer.hpp"

namespace stepzero {

// w after it.
template <class S>
void update_first(const TensorPlan& plan, View<S> w, View<const S> g, double shrink);

// What becomes of the blocks of one tensor; where the update needs all of it at once, they have read the same wire.
template <class S>
void plan_first_update(const TensorPlan& plan, double shrink, std::span<FirstPass<S>* const> blocks);

}  // namespace stepzero
