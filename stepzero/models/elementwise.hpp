#pragma once
#include "stepzero/models/architecture.hpp"
#include "stepzero/ops/all.hpp"

namespace stepzero {

// The op of an activation: the one whose kind is the activation's name.
AnyOp elementwise(Activation f, Index width);

}  // namespace stepzero
