#pragma once
// All rules of finite width, and draws of whole models: what the walks over moments use.
#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/finite/function.hpp"
#include "stepzero/ops/finite/linear.hpp"
#include "stepzero/ops/finite/multiply.hpp"
#include "stepzero/ops/finite/norm.hpp"
#include "stepzero/ops/finite/residual.hpp"

namespace stepzero {

// In one draw of a model (theory/predict_drawn.hpp). By default as at finite width, where nothing is left to vary; a sum and attention
// draw what the kernels of their inputs do not say.
template <class T>
DownWire push_drawn(const T& op, const PushDoor& p) {
  return push_finite(op, p);
}
template <class T>
Pulled pull_drawn(const T& op, const PullDoor& p) {
  return pull_finite(op, p);
}

}  // namespace stepzero
