#pragma once
// Functions and gates in a step, in closed form (twice.hpp), with what drawn channels add: a channel's change depends on its gradient,
// d_u = f'(u) o dh, and so on the slope that it meets. Channels behind matrices are drawn, with the gradient of the output N(0, G / n), and
// the ops run forward and backward on them (drawn.hpp): for that dependence, and for what the updates of the matrices in front do.
// Derived in docs/derivations/move.md
#include "stepzero/ops/move/chain.hpp"
#include "stepzero/ops/move/likeness.hpp"

namespace stepzero {

// width: channels of the model's wire. given: the changes of the inputs at the first step that is looked at. A fresh `alike` is filled in,
// another one is used.
ChainMover move_pointwise(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs, const Kernel& G, Index width,
                          std::uint64_t place, double effort, std::span<const WireChange* const> given, Likeness& alike);

// The op with `channels` channels, if it works channel by channel; else empty.
std::optional<AnyOp> pointwise(const AnyOp& op, Index channels);

}  // namespace stepzero
