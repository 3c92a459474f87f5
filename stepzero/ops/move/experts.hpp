#pragma once
// Experts in a step. Gates are drawn as a router makes them; then each expert is a gated feed-forward of its own, in a step, over the
// tokens that chose it. With o its output, of kernel K, and stretch, size, response its change:
//
//     size       = E sum_e g' g' (K + Y + Y' + size) + g g K - g' g (K + Y) - g g' (K + Y)',  Y = stretch K          (1)
//     stretch K_y = E sum_e g' g (K + Y) - g g K                                                                    (2)
//     response   = E sum_e g' response g + K o response_r o E sum_e <J_te, J_se>,  J_te = dg_te / dr_t               (3)
// where g g' of t, s is g_te g'_se. The router's logits move as channels do (drawn.hpp), each by its own gradient, and tokens change
// their experts: an expert is new to them, so of size g^2 K however small the step is. Experts differ, so that what they do is independent.
// Derived in docs/derivations/move.md
#include "stepzero/ops/experts.hpp"
#include "stepzero/ops/move/chain.hpp"
#include "stepzero/ops/move/likeness.hpp"

namespace stepzero {

struct ExpertsDoor {
  const Batch& batch;
  std::span<const DrawnFrom> inputs;  // what the experts read, the router's logits
  std::span<const Law> theta;
  std::span<const Update> updates;
  const Kernel& G;                           // of the gradient of the output
  const Kernel& y;                           // of the output
  std::span<const WireChange* const> given;  // changes of the inputs in the first step that is looked at
  std::uint64_t place = 0;
  double effort = 1;
};

ChainMover move_experts(const Experts& op, const ExpertsDoor& p, Likeness& alike);

}  // namespace stepzero
