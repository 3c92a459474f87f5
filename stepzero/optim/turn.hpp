#pragma once
// What a rule is given: one tensor, its gradient and what it remembers.
#include <span>

#include "stepzero/core/view.hpp"
#include "stepzero/graph/param.hpp"

namespace stepzero {

// The numbers of one tensor's update. rate and decay are those of this update: the schedule is in them.
struct TensorRate {
  double rate = 0;
  double decay = 0;
  double eps = 0;
};

template <class S>
struct Turn {
  View<S> w;
  View<const S> g;
  double shrink = 1;  // the gradient is shrink * g
  TensorRate rate;
  Index updates = 0;              // before this one
  std::span<Tensor<S>> memory{};  // as many as the rule asks for, zero at first
};

}  // namespace stepzero
