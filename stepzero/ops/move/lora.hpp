#pragma once
// A matrix with an adapter in a step, y = x W + c x A' B' with B = 0 as adapters begin: A has no gradient, and no update, and B is a matrix
// over H = c x A', whose kernel is reads K with
//
//     reads = c^2 n E[a^2]                                                                                          (1)
// W is frozen as a rule: it only hands on what has changed before it.
// Derived in docs/derivations/move.md
#include "stepzero/ops/lora.hpp"
#include "stepzero/ops/move/door.hpp"

namespace stepzero {

Mover move(const LoraLinear& op, const MoveDoor& p);

}  // namespace stepzero
