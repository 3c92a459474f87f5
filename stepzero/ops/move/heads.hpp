#pragma once
// Attention in a step: heads are drawn, with the gradient of their output N(0, G / n), and go backward and forward again with what is
// between them and their matrices (rotations, norms of heads), before and after the step (drawn.hpp).
//
//     response = E[A' response_v A^T] + what q and k make of it, by drawn directions                                  (1)
//     size, stretch as of a function; scores: root mean square of the change over visible keys                        (2)
// Heads that share a key head are drawn together, the kernel of their input anew for each draw. Muon's update of queries and keys knows all
// heads of a model at once: so many are drawn together. In layers that are alike none are: there the mean weights act on the values,
//
//     size = ratio o (A size_v A'),  response = ratio A response_v A',  scores = ratio c sqrt(dk <Q_q K_k + K_q Q_k + Q_q Q_k>) (3)
//
// with the ratios that drawn heads had to these (likeness.hpp).
// Learned biases of scores and sinks are drawn with the heads, and pulled at by all layers that share them: the gradient of the others is
// noise of their size. A part of the keys that all heads share is pulled at by all of them: other drawn heads stand for those.
// Derived in docs/derivations/move.md
#include "stepzero/ops/move/chain.hpp"
#include "stepzero/ops/move/likeness.hpp"

namespace stepzero {

// A table of the attention (learned biases of scores, sinks) that others use too.
struct TableUse {
  double squares = 0;  // E ||dtheta||^2 of all uses; 0: not known
  int uses = 1;
};

// The last node is the attention, the others what is in front of it. updates: of every node's parameters, the gains of heads. output: the
// kernel of what the attention gives. A fresh `alike` is filled in, another one is used, by the mover too: the first step told at place 0.
ChainMover move_heads(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs,
                      std::span<const std::vector<Update>> updates, std::span<const TableUse> tables, const Kernel& G, const Kernel& output,
                      std::uint64_t place, double effort, Likeness& alike);

// The op for some of the heads, if it works head by head and can stand in front of an attention; else empty.
std::optional<AnyOp> for_heads(const AnyOp& op, Index heads);

}  // namespace stepzero
