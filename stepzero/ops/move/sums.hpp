#pragma once
// Sums and numbers in a step. Both wires of y = a x + b f answer the one gradient of y, and what else they change by is independent:
//
//     response'  = a^2 response_x + b^2 response_f                                                                  (1)
//     size'      = a^2 size_x + b^2 size_f + a^2 b^2 (T_x G T_f' + T_f G T_x') / n,  T the responses                 (2)
//     stretch' K_y = a^2 stretch_x K_x + b^2 stretch_f K_f                                                          (3)
// y = c x: response and size times c^2. y = P x, rows of the sequences that are taken: P response P', P size P', P stretch K P' = stretch'
// K_y. A branch gain y = g o x is a gain's law on what it multiplies (vectors.hpp). Derived in docs/derivations/move.md
#include "stepzero/ops/dropout.hpp"
#include "stepzero/ops/gain.hpp"
#include "stepzero/ops/move/door.hpp"
#include "stepzero/ops/pool.hpp"
#include "stepzero/ops/residual.hpp"
#include "stepzero/ops/scale.hpp"

namespace stepzero {

Mover move(const Residual& op, const MoveDoor& p);
Mover move(const Scale& op, const MoveDoor& p);
Mover move(const Gain& op, const MoveDoor& p);
Mover move(const Dropout& op, const MoveDoor& p);
Mover move(const TokenPool& op, const MoveDoor& p);

}  // namespace stepzero
