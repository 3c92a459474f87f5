#pragma once
#include "stepzero/models/architecture.hpp"
#include "stepzero/ops/all.hpp"

namespace stepzero {

// The op of an activation: the one whose kind is the activation's name.
AnyOp elementwise(Activation f, Index width);
AnyActivation any_activation(Activation f, Index width);  // the same where only such an op can stand

}  // namespace stepzero
