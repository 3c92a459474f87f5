#pragma once
// Rows that are looked up, in a step: tokens that share a row share its update. With eq_ts = 1 where they do, c_ts the sum of G over the
// pairs of the two rows and rho_ts = c_ts / sqrt(c_tt c_ss):
//
//     SGD    A = eq,  R = 0                                                                                         (1)
//     sign   A_ts = c1 sqrt(n / c_tt) eq_ts,  size_ts = c2 (2 / pi) asin(rho_ts), in all                            (2)
// Patches of an image go through a matrix over inputs that are known, so that its sign law is a sum over them; bias and class token are
// rows that all patches, and all first tokens, share.
// Derived in docs/derivations/move.md
#include "stepzero/ops/embedding.hpp"
#include "stepzero/ops/move/door.hpp"
#include "stepzero/ops/patch.hpp"
#include "stepzero/ops/position.hpp"

namespace stepzero {

Mover move(const TokenEmbedding& op, const MoveDoor& p);
Mover move(const LearnedPosition& op, const MoveDoor& p);
Mover move(const SinusoidalPosition& op, const MoveDoor& p);
Mover move(const PatchEmbedding& op, const MoveDoor& p);

}  // namespace stepzero
