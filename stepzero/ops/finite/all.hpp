#pragma once
// All rules of finite width, and draws of whole models: what the walks over moments use.
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/finite/fresh.hpp"
#include "stepzero/ops/finite/function.hpp"
#include "stepzero/ops/finite/linear.hpp"
#include "stepzero/ops/finite/multiply.hpp"
#include "stepzero/ops/finite/norm.hpp"
#include "stepzero/ops/finite/residual.hpp"

namespace stepzero {

// Push and pull in one draw of a model's kernels (theory/predict_drawn.hpp): by default those of finite width, with no fluctuations
// left. Sums and attention have overloads: their outputs depend on more than the Gram matrices of their inputs, and they draw the rest.
template <class T>
DownWire push_drawn(const T& op, const PushDoor& p) {
  return push_finite(op, p);
}
template <class T>
Pulled pull_drawn(const T& op, const PullDoor& p) {
  return pull_finite(op, p);
}

}  // namespace stepzero
