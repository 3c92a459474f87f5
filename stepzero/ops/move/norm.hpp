#pragma once
// A norm in a step, y = g o x / r + b with r_t^2 = K_tt + eps: the new size of a token divides it, so that however far x moves, y moves
// by what is of the order of 1.
//
//     r'_t^2 = K_tt + 2 Y_tt + size_tt + eps,  Y = stretch K,  a = 1 / r',  b = 1 / r' - 1 / r                     (1)
//     response'  = g^2 response / (r'_t r_s) + A_g + A_b                                                          (2)
//     size'      = g^2 (b b' o K + a_t b_s Y_ts + b_t a_s Y_st + size / (r'_t r'_s)) + (A G A' + A G T' + T G A') / n + R          (3)
//     stretch'   = diag(b o r) + diag(1 / r') stretch diag(r)                                                     (4)
// with A = (I + stretch') A_g + A_b and R theirs (vectors.hpp), T the first term of (2): gains multiply what has changed by now.
// Derived in docs/derivations/move.md
#include "stepzero/ops/move/door.hpp"
#include "stepzero/ops/norm.hpp"

namespace stepzero {

Mover move_norm(const Kernel& centred, double eps, double gain, bool gains, bool biases, const MoveDoor& p);

template <bool centred>
Mover move(const Norm<centred>& op, const MoveDoor& p) {
  STEPZERO_CHECK(op.groups == 1);  // those of heads belong to their attention
  const double g = (op.unit_offset ? 1 : 0) + (op.gain ? p.theta[0].mean : 1);
  return move_norm(Norm<centred>::centred_kernel(*p.x[0]), op.eps, g, op.gain, op.bias, p);
}

}  // namespace stepzero
