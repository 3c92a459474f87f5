#pragma once
// What the rotations of queries and keys make of the covariance of two scores: it depends on the tokens' places through one number.
//
//     Cov(s_tj, s_sl) = c^2 dk Kq_ts Kk_jl r((t - s) - (j - l)),   r(p) = (2 f^4 sum_i cos(p w_i) + channels that pass) / dk
//
// Kq and Kk are the kernels before the turn.
#include <vector>

#include "stepzero/ops/rotary.hpp"

namespace stepzero {

class Turn {
 public:
  Turn(const Rotary& rotary, Index length);

  // r(p), for distances below twice the length of a sequence
  [[nodiscard]] double score(Index p) const { return score_[static_cast<std::size_t>(std::abs(p))]; }
  // what is left of the product of two turned vectors of one kind: the same with f^2
  [[nodiscard]] double side(Index p) const { return side_[static_cast<std::size_t>(std::abs(p))]; }

  // r(p) = sum of weight cos(p frequency). Pairs that hardly turn within a sequence are one wave together.
  struct Wave {
    double frequency, weight;
  };
  [[nodiscard]] const std::vector<Wave>& waves() const { return waves_; }

 private:
  std::vector<Wave> waves_;
  std::vector<double> score_, side_;
};

// Whether one r serves for both sides.
inline bool turn_alike(const Rotary& a, const Rotary& b) {
  return a.head_dim == b.head_dim && a.turned == b.turned && a.stretch == b.stretch && a.base == b.base && a.frequencies == b.frequencies;
}

}  // namespace stepzero
