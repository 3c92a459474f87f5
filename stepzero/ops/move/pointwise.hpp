#pragma once
// Functions and gates in a step. Their inputs are normal channels behind matrices, and how a channel moves depends on its gradient, which
// depends on the channel itself: d_u = f'(u) o dh. So channels are drawn, with the gradient of the output N(0, G / n), and the ops run
// forward and backward on them (drawn.hpp).
//
//     size_ts = E (h'_t - h_t)(h'_s - h_s),  Y_ts = E (h'_t - h_t) h_s,  stretch = Y K^-1                            (1)
//     response_ts = sum over inputs k of response_k,ts E J'_k,t J_k,s,  J = dh/du before, J' after the step            (2)
// Derived in docs/derivations/move.md
#include "stepzero/ops/move/chain.hpp"

namespace stepzero {

// width: channels of the model's wire.
ChainMover move_pointwise(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs, const Kernel& G, Index width,
                          std::uint64_t place, double effort);

// The op with `channels` channels, if it works channel by channel; else empty.
std::optional<AnyOp> pointwise(const AnyOp& op, Index channels);

}  // namespace stepzero
