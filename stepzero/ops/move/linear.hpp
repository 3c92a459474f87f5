#pragma once
// y = x W + 1 b' in a step. A change of x comes through W twice: in the mean W' W is w = n_in E[w^2] times the identity, and what W' W adds
// to its mean is as large as all of the change is, as if that knew nothing of W.
//
//     response'  = w response + rate (I + stretch) A + rate A_b                                                     (1)
//     size'      = response' G response' / n_out + w size + rate^2 ((I + stretch) R (I + stretch)' + R_b)
//                  + rate^2 (||U||^2 / n_out) (size - stretch K stretch')                                           (2)
//     stretch'   = stretch                                                                                          (3)
// Weight decay takes its share of the matrix: the changed output, and with it all of the above, is (1 - rate decay) times as large.
// Derived in docs/derivations/move.md
#include "stepzero/ops/linear.hpp"
#include "stepzero/ops/move/door.hpp"

namespace stepzero {

Mover move(const Linear& op, const MoveDoor& p);

// Lets a mover run as a matrix does.
void run_by(const std::shared_ptr<MatrixMove>& m, Mover& mover);

// y = x', for an op that has multiplied everything by a number.
WireChange scaled(WireChange x, double factor);

}  // namespace stepzero
