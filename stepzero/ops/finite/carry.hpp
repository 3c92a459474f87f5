#pragma once
// The moment doors at finite width.
//
//     push_finite(op, door)   the mean over draws, E push(K + dK) with dK as the inputs' fluctuations say; and the output's fluctuations
//     pull_finite(op, door)   the same for the gradient, and its responses
//
// By default push and pull are those of the limit, and fluctuations and responses are carried on unchanged. An op that changes them
// says so by an overload in this folder (norm, linear, functions, multiply, residual), or by a push that returns a DownWire (ops that
// mix tokens, and ops that sample).
#include <concepts>
#include <utility>

#include "stepzero/ops/op.hpp"

namespace stepzero {

// An op whose own push and pull handle fluctuations.
template <class T>
concept CarriesItself = requires(const T& op, const PushDoor& p) {
  { op.push(p) } -> std::same_as<DownWire>;
};

template <class T>
DownWire push_finite(const T& op, const PushDoor& p) {
  if constexpr (CarriesItself<T>)
    return op.push(p);
  else if (p.x.empty())
    return {op.push(p), {.noise = 1 / static_cast<double>(op.channels())}};  // a table's rows: independent channels
  else
    return {op.push(p), p.x[0]->f};
}

template <class T>
Pulled pull_finite(const T& op, const PullDoor& p) {
  Pulled up = op.pull(p);
  if constexpr (!CarriesItself<T>) {
    for (UpWire& d : up.dx) d.r = p.dy.r;
  }
  return up;
}

}  // namespace stepzero
