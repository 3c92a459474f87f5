#pragma once
// The ops that the fifth door knows.
#include <string>

#include "stepzero/ops/all.hpp"
#include "stepzero/ops/move/door.hpp"

namespace stepzero {

// Why the first step of an op is not predicted; empty: it is.
std::string not_moved(const AnyOp& op);

// Of an op that moves by itself; nothing of one that is drawn together with others.
Mover move_alone(const AnyOp& op, const MoveDoor& door);

}  // namespace stepzero
