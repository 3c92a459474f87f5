#pragma once
// The moment doors at finite width: what an op makes of the limit, of how one draw differs from it, and of the mean over draws.
//
//     push_finite(op, door)   E push(K + dK) over the draws that the inputs' fluctuations tell of, and the output's own fluctuations
//     pull_finite(op, door)   the same up
//
// By default the limit stands as it is and everything is carried on. An op that changes more says so by an overload in this folder
// (norm, linear, functions, multiply, residual), or by a push that returns a DownWire: those that mix tokens and sample.
#include <concepts>
#include <utility>

#include "stepzero/ops/op.hpp"

namespace stepzero {

// Its own push and pull tell of fluctuations.
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
